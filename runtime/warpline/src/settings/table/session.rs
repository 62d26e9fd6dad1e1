//! The settings for whether a session records, who controls it and what it prints.
//!
//! The macro adds its entries to those of the groups before it and calls the next group; `table` has the order.

macro_rules! session {
    ({ $($before:tt)* } $next:ident $($then:ident)*) => { $next! { { $($before)*

    Setting::flag("off", "record nothing", |config| &mut config.off)
    .row("", "", "record nothing, whatever the other settings are; the NVTX mirror has its own `nvtx=off`");
    own { off: bool = false }
    methods {}

    Setting::flag("control", "let the command `warpline` control this process", |config| &mut config.control)
    .only_if(cfg!(target_os = "linux"), NO_CONTROL)
    .row(
        "`.control()`",
        "no",
        "let the command `warpline` [control the program from outside](control.md); without an output, record only what it requests; Linux",
    );
    own { control: bool = false }
    methods {
        /// Lets the command `warpline` (`ps`, `record`, `top`, …) request this process's state, a trace or single zones during the session.
        /// The command must run as the same user on the same machine. Without an output, the session records only what the command
        /// requests. If the socket's directory is not safe, no client can connect, standard error and the report say so, and the session
        /// continues. Linux only; elsewhere [`start`](Self::start) fails. `WARPLINE=control`.
        pub fn control(self) -> Self {
            self.line("control")
        }
    }

    Setting::flag("quiet", "do not print where traces are", |config| &mut config.quiet)
    .row("`.quiet()`", "no", "do not print [where the files are](#files)");
    shared { quiet: bool = false }
    methods {
        /// Turns off the list of written files at the end of the session. Warnings and errors are still printed. `WARPLINE=quiet`.
        pub fn quiet(self) -> Self {
            self.line("quiet")
        }
    }

    Setting::value(
        "finish_on_signal",
        "finish_on_signal=off",
        "let SIGINT and SIGTERM end the program without finishing the session",
        "off",
        |config, text| parse_switch("finish_on_signal", text).map(|is_on| config.finish_on_signal = is_on),
    )
    .row(
        "`.finish_on_signal(false)`",
        "on",
        "whether SIGINT and SIGTERM [finish the session](#how-a-session-ends) before they end a program that does not handle them; Unix",
    );
    own { finish_on_signal: bool = true }
    methods {
        /// Sets whether SIGINT and SIGTERM finish the session before they end the program. It is the default, and applies only to signals that the
        /// program does not handle. `WARPLINE=finish_on_signal=off`.
        pub fn finish_on_signal(mut self, finishes: bool) -> Self {
            self.config.finish_on_signal = finishes;
            self
        }
    }

    Setting::flag("help", "print this list and record nothing", |config| &mut config.help)
    .row("", "", "print the settings on standard error and record nothing");
    shared { help: bool = false }
    methods {}

    } $($then)* } };
}
