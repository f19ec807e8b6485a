// A link with data-trace opens its trace in Perfetto's page, which reads it in the browser: it is stored nowhere else.
// The page is asked whether it listens until it answers (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-trace]");
    if (!link) return;
    event.preventDefault();
    const {origin} = new URL(link.href), viewer = window.open(origin);
    if (!viewer) return;
    const answer = await fetch(link.dataset.trace);
    if (!answer.ok) return viewer.close();
    const buffer = await answer.arrayBuffer();
    const ask = setInterval(() => viewer.closed ? clearInterval(ask) : viewer.postMessage("PING", origin), 100);
    window.addEventListener("message", function listens({source, data}) {
        if (source !== viewer || data !== "PONG") return;
        clearInterval(ask);
        window.removeEventListener("message", listens);
        viewer.postMessage({perfetto: {buffer, title: link.dataset.title}}, origin);
    });
});
