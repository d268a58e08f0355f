// Changes files in the ways of Node: `ways.mjs list` prints their names, `ways.mjs NAME FILE FOLDER` does one.

import { spawnSync, spawn, execSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import { Worker } from "node:worker_threads";

const ended = (emitter, event) => new Promise((done, fail) => emitter.on(event, done).on("error", fail));

const ways = {
    writeFileSync: (file) => fs.writeFileSync(file, "changed"),
    writeFile: (file) => fs.promises.writeFile(file, "changed"),
    appendFile: (file) => fs.promises.appendFile(file, "changed"),
    createWriteStream: (file) => { const out = fs.createWriteStream(file); out.end("changed"); return ended(out, "finish"); },
    openAndWrite: async (file) => { const held = await fs.promises.open(file, "r+"); await held.write("XX", 1); await held.close(); },
    truncate: (file) => fs.promises.truncate(file, 1),
    chmod: (file) => fs.promises.chmod(file, 0o700),
    utimes: (file) => fs.promises.utimes(file, 1, 1),
    rename: (file, folder) => fs.promises.rename(file, folder + "/renamed"),
    renameFolder: (file, folder) => fs.promises.rename(folder, folder + "-renamed"),
    unlink: (file) => fs.promises.unlink(file),
    rm: (file, folder) => fs.promises.rm(folder, { recursive: true }),
    cp: (file, folder) => fs.promises.cp(folder, folder + "-copy", { recursive: true }),
    copyFile: (file) => fs.promises.copyFile("/bin/sh", file, fs.constants.COPYFILE_FICLONE),
    mkdir: (file, folder) => fs.promises.mkdir(folder + "/a/b", { recursive: true }),
    mkdtemp: (file, folder) => fs.promises.mkdtemp(folder + "/t-"),
    link: async (file, folder) => { await fs.promises.link(file, folder + "/hard"); fs.writeFileSync(folder + "/hard", "x"); },
    symlink: async (file, folder) => { await fs.promises.symlink(file, folder + "/soft"); fs.writeFileSync(folder + "/soft", "x"); },
    spawn: (file) => ended(spawn("/bin/rm", [file], { env: {} }), "close"),
    spawnDetached: async (file) => {
        spawn("sh", ["-c", 'echo changed > "$0"', file], { detached: true, stdio: "ignore" }).unref();
        await new Promise((done) => setTimeout(done, 300));
    },
    execSync: (file) => execSync("echo changed > '" + file + "'"),
    worker: (file) => ended(new Worker("require('fs').writeFileSync(" + JSON.stringify(file) + ", 'x')", { eval: true }), "exit"),
    listen: async (file, folder) => {
        process.chdir(folder);
        const server = net.createServer().listen("socket");
        await ended(server, "listening");
        // The program ends without closing it, so the socket stays.
        process.exit(0);
    },
    npm: (file, folder) => {
        const done = spawnSync("npm", ["init", "-y"], { cwd: folder });
        if (done.status !== 0) throw new Error("npm: " + done.error);
    },
};

const [name, file, folder] = process.argv.slice(2);
if (folder === undefined) for (const known of Object.keys(ways)) console.log(known);
else await ways[name](file, folder);
