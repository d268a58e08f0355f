//! The view of `oomph watch` in a terminal: bars, curves and a table, redrawn in place.
//!
//! [`View`] is what is shown, and [`draw`] puts it on any screen, so that tests draw on one in memory. [`Screen`] owns the
//! terminal: it takes it over, reads keys, and gives it back whatever ends the watch.

mod draw;
mod parts;
mod plan;
mod table;
mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use oomph_report::{Style, WatchReport};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;

use crate::status;
use view::View;

/// A signal is seen within this time.
const SLICE: Duration = Duration::from_millis(100);

/// The status of a watch that Ctrl-C ended: in raw mode the terminal sends a key instead of SIGINT.
const CTRL_C: u8 = 130;

/// The terminal while the watch owns it.
#[derive(Debug)]
pub struct Screen {
    terminal: DefaultTerminal,
    view: View,
    signals: signals::Signals,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    End(u8),
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Help,
}

impl Screen {
    /// Takes over the terminal; `None` where there is none that keys can be read from.
    ///
    /// # Errors
    /// When the terminal does not let itself be taken over.
    pub fn open(style: Style) -> io::Result<Option<Self>> {
        if !has_keys() {
            return Ok(None);
        }
        // Signals come first: one that arrives between the two steps must find somebody who restores the terminal.
        let signals = signals::Signals::new()?;
        // This also restores the terminal ahead of a panic's message.
        let terminal = ratatui::try_init().inspect_err(|_| restore())?;
        Ok(Some(Self { terminal, view: View::new(style), signals }))
    }

    /// Draws a look. `news` are the lines that a log would get.
    ///
    /// # Errors
    /// When the terminal does not take it.
    pub fn show(&mut self, report: &WatchReport, news: Vec<String>) -> io::Result<()> {
        self.view.add(report, news);
        self.draw()
    }

    /// Waits, and answers keys meanwhile. Hands over the status once the watch is to end.
    ///
    /// # Errors
    /// When keys cannot be read, or the terminal cannot be drawn on.
    pub fn pause(&mut self, time: Duration) -> io::Result<Option<ExitCode>> {
        let began = Instant::now();
        loop {
            if let Some(signal) = self.signals.seen() {
                return Ok(Some(crate::status::interrupted(signal)));
            }
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if !event::poll(left.min(SLICE))? {
                continue;
            }
            match event::read()? {
                Event::Key(typed) => match key(typed) {
                    Some(Key::End(status)) => return Ok(Some(ExitCode::from(status))),
                    Some(key) => self.view.press(key),
                    None => continue,
                },
                Event::Resize(..) => {}
                _ => continue,
            }
            self.draw()?;
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        self.terminal.draw(|frame| draw::draw(frame, &mut self.view)).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether keys can be read: from stdin, or where that is something else, from the terminal of this process.
fn has_keys() -> bool {
    io::stdin().is_terminal() || (cfg!(unix) && std::fs::File::open("/dev/tty").is_ok())
}

/// Gives the terminal back. There is nobody to tell when that fails: it is gone.
fn restore() {
    let _ = ratatui::try_restore();
    // Drawing hides the cursor, and shows it again only where the terminal's owner is dropped.
    let _ = execute!(io::stdout(), Show);
}

/// What a key asks for, if anything.
fn key(typed: KeyEvent) -> Option<Key> {
    if typed.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = typed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match typed.code {
        KeyCode::Char('c') if is_control => Key::End(CTRL_C),
        _ if is_control => return None,
        KeyCode::Char('q') | KeyCode::Esc => Key::End(status::DONE),
        KeyCode::Up | KeyCode::BackTab | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Tab | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Char('?' | 'h') => Key::Help,
        _ => return None,
    })
}

#[cfg(unix)]
mod signals {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::time::Duration;

    use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    /// A watch that a call of the driver holds up for longer ends without it.
    const TIMEOUT: Duration = Duration::from_secs(2);

    /// The signals that end a watch, each of which has to leave the terminal as it was.
    #[derive(Debug)]
    pub struct Signals(Arc<AtomicI32>);

    impl Signals {
        /// Begins to take them.
        pub fn new() -> io::Result<Self> {
            let seen = Arc::new(AtomicI32::new(0));
            let noted = Arc::clone(&seen);
            let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
            std::thread::Builder::new().name("signals".into()).spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    noted.store(signal, Ordering::Relaxed);
                    std::thread::sleep(TIMEOUT);
                    super::restore();
                    std::process::exit(signal.saturating_add(128));
                }
            })?;
            Ok(Self(seen))
        }

        /// The one that has arrived.
        pub fn seen(&self) -> Option<i32> {
            Some(self.0.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
        }
    }
}

#[cfg(not(unix))]
mod signals {
    use std::io;

    /// Here a console's events end the process, and the console restores itself.
    #[derive(Debug)]
    pub struct Signals;

    impl Signals {
        /// Nothing is taken.
        pub fn new() -> io::Result<Self> {
            Ok(Self)
        }

        /// None arrives.
        pub fn seen(&self) -> Option<i32> {
            None
        }
    }
}

#[cfg(test)]
mod tests;
