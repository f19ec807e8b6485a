// Dash's upload passes over files that it does not take without a word: this says what is wrong with one.
window.dash_clientside = {...window.dash_clientside, uploads: {
    tell(id, most) {
        const tell = (event) => {
            const [file] = (event.dataTransfer ?? event.target).files;
            if (!file) return;
            const csv = /\.csv$/i.test(file.name) || file.type === "text/csv";
            const is = file.size > most ? `has ${(file.size / 2 ** 20).toFixed(1)} MiB` : csv ? "" : "is no CSV file";
            const allowed = `expected the report.csv of a sweep, at most ${most / 2 ** 20} MiB`;
            window.dash_clientside.set_props("sweeps-rejected", {children: is && `${file.name} ${is}: ${allowed}`});
        };
        const box = document.getElementById(id);
        for (const kind of ["change", "drop"]) box.addEventListener(kind, tell, true);
        return window.dash_clientside.no_update;
    },
}};
