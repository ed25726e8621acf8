//! A graceful stop: the first SIGINT or SIGTERM lets what was begun come to its end, the second one does not.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancels `stop` at the first signal and ends the process at the second, with the documented exit code 4: what was
/// claimed then is ambiguous and is reconciled by the next run.
pub(super) async fn on_signal(stop: CancellationToken) {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be caught; a stop will not be graceful");
        return;
    };
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    next().await;
    tracing::warn!("stopping: what was begun is brought to its end; once more to stop at once");
    stop.cancel();
    next().await;
    std::process::exit(4);
}
