// Browsers refuse to start a worker from a file, and the search of this site runs in one. Where a page was opened from the file system,
// the worker's script runs in a hidden frame instead. The name matters: zensical would otherwise load a script of this name from
// another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const scope = this.frame.contentWindow;
      scope.postMessage = (message) => {
        const data = structuredClone(message);
        setTimeout(() => this.emit(new MessageEvent("message", { data })));
      };
      this.loaded = new Promise((resolve) => {
        const script = scope.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => this.emit(new Event("error", { cancelable: true }));
        scope.document.body.append(script);
      });
    }

    emit(event) {
      this["on" + event.type]?.(event);
      this.dispatchEvent(event);
    }

    postMessage(message) {
      const data = structuredClone(message);
      this.loaded.then(() => this.frame.contentWindow?.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
