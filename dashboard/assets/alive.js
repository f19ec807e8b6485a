// A page whose server has ended looks alive: say so as soon as a question finds nobody, until one is answered again. A
// page that asks nothing asks now and then whether somebody is there.
(() => {
    const PAUSE_MS = 15_000;
    const ask = window.fetch;
    const banner = document.createElement("div");
    banner.setAttribute("role", "alert");
    banner.className = "gone";
    banner.textContent = "The server does not answer: what is shown may be old. Start `runcast dashboard` again, then reload.";

    window.fetch = async (...question) => {
        try {
            const answer = await ask(...question);
            banner.remove();
            return answer;
        } catch (error) {
            if (error.name !== "AbortError" && document.visibilityState === "visible") document.body.append(banner);
            throw error;
        }
    };

    setInterval(() => {
        if (document.visibilityState === "visible")
            window.fetch("/_favicon.ico", {method: "HEAD", cache: "no-store"}).catch(() => {});
    }, PAUSE_MS);
})();
