//! Writes the bill of materials in the format of CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>).

use serde_json::{Value, json};

use super::packages::Package;

/// Every package with its licence, its checksum and what it is linked with.
pub fn document(packages: &[Package], version: &str) -> Value {
    let components: Vec<_> = packages.iter().filter(|package| package.name != "oomph").map(component).collect();
    let dependencies: Vec<_> = packages
        .iter()
        .map(|package| {
            let on: Vec<_> = package.dependencies.iter().map(|(name, version)| purl(name, version)).collect();
            json!({ "ref": purl(&package.name, &package.version), "dependsOn": on })
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl("oomph", version),
                "name": "oomph",
                "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(package: &Package) -> Value {
    let purl = purl(&package.name, &package.version);
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "purl": purl,
        "name": package.name,
        "version": package.version,
    });
    // A slash is how old manifests write "or".
    if let Some(licence) = &package.licence {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(repository) = &package.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// The package's address among those of all registries.
fn purl(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{version}")
}
