/** What the demo provider tells the parent that started it with an IPC channel. */
export type DemoReady = {
  readonly kind: 'ready'
  /** Where it listens, e.g. `http://127.0.0.1:40123`. */
  readonly origin: string
}
