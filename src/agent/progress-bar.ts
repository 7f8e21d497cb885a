import { Presets, SingleBar } from 'cli-progress'
import type { BenchmarkProgress } from './benchmark.ts'

export type ProgressBar = {
  show(model: string, progress: BenchmarkProgress): void
  /** Ends the bar. Later progress starts a new bar. */
  stop(): void
}

/** The bar is shown only on a terminal. Elsewhere the log has lines for start and end. */
export function createProgressBar(stream: NodeJS.WriteStream): ProgressBar {
  if (stream.isTTY !== true) return { show: () => undefined, stop: () => undefined }
  let shown: { readonly model: string; readonly bar: SingleBar } | null = null
  const stop = () => {
    shown?.bar.stop()
    shown = null
  }
  const open = (model: string): SingleBar => {
    stop()
    const format = 'benchmark {model} [{bar}] {percentage}% {part}'
    const bar = new SingleBar({ stream, format, clearOnComplete: false }, Presets.shades_classic)
    bar.start(100, 0, { model, part: '' })
    shown = { model, bar }
    return bar
  }
  return {
    show: (model, { part, done }) => {
      const bar = shown?.model === model ? shown.bar : open(model)
      bar.update(Math.floor(done * 100), { model, part })
    },
    stop,
  }
}
