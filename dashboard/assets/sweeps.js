// A sweep is at work: what is shown of it grows, now and then, as drawing takes a processor that the sweep may need. One
// that was started on this page opens at its first points, once, so that one may look at another meanwhile.
// All is written by set_props: Dash would hold back what depends on a callback that is still at work.
(() => {
    const PAUSE_MS = 2000;
    let opened = null, drawn = "", drawn_ms = 0;

    const isShown = (name) => document.getElementById("sweeps-counts")?.dataset.sweep === name;

    function show(name, done) {
        const {set_props} = window.dash_clientside;
        if (isShown(name)) set_props("sweeps-source", {data: done ? {name, done} : {name}});
        else set_props("sweeps-done", {data: name});
    }

    window.dash_clientside = {...window.dash_clientside, sweeps: {
        grow(far) {
            const {no_update} = window.dash_clientside, {name, done, opens} = far ?? {};
            if (!far) opened = null;
            if (!far || Date.now() - drawn_ms < PAUSE_MS || drawn === `${name} ${done}`) return no_update;
            if (!isShown(name) && (!opens || opened === name)) return no_update;
            [opened, drawn, drawn_ms] = [name, `${name} ${done}`, Date.now()];
            show(name, done);
            return no_update;
        },
        end(name) {
            if (name) show(name);
            return window.dash_clientside.no_update;
        },
    }};
})();
