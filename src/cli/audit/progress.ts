import { Presets, SingleBar } from 'cli-progress'

/** Shortest time between two lines on what is no terminal, milliseconds. */
export const LINE_INTERVAL_MS = 10_000

/** Shows how far an audit is. */
export type AuditProgress = {
  start(notary: string, size: number): void
  update(size: number): void
  stop(): void
}

/** Gives a bar on a terminal; elsewhere, for logs, a line now and then. `now` gives milliseconds. */
export function createAuditProgress(stream: NodeJS.WriteStream, now: () => number): AuditProgress {
  return stream.isTTY === true ? createBar(stream) : createLines(stream, now)
}

function createBar(stream: NodeJS.WriteStream): AuditProgress {
  const format = '{notary} [{bar}] {percentage}% {value}/{total} leaves, {eta_formatted} to go'
  const bar = new SingleBar({ stream, format, clearOnComplete: true }, Presets.shades_classic)
  return {
    start: (notary, size) => bar.start(size, 0, { notary }),
    update: (size) => bar.update(size),
    stop: () => bar.stop(),
  }
}

function createLines(stream: NodeJS.WriteStream, now: () => number): AuditProgress {
  let log = { notary: '', size: 0 }
  let toldAtMs = now()
  return {
    start: (notary, size) => {
      log = { notary, size }
    },
    update: (size) => {
      if (now() - toldAtMs < LINE_INTERVAL_MS) return
      toldAtMs = now()
      stream.write(`${log.notary}: ${size} of ${log.size} leaves\n`)
    },
    stop: () => undefined,
  }
}
