import { Presets, SingleBar } from 'cli-progress'
import type { BenchmarkProgress } from './benchmark.ts'

/** Shows how far benchmarks are, one bar a model. */
export type ProgressBar = {
  show(model: string, progress: BenchmarkProgress): void
  stop(): void
}

/** Gives bars on a terminal, and nothing on what is none: a log has lines for beginning and end. */
export function createProgressBar(stream: NodeJS.WriteStream): ProgressBar {
  if (stream.isTTY !== true) return { show: () => undefined, stop: () => undefined }
  const bars = new Map<string, SingleBar>()
  const open = (model: string): SingleBar => {
    for (const bar of bars.values()) bar.stop()
    const format = 'benchmark {model} [{bar}] {percentage}% {part}'
    const bar = new SingleBar({ stream, format, clearOnComplete: false }, Presets.shades_classic)
    bar.start(100, 0, { model, part: '' })
    bars.set(model, bar)
    return bar
  }
  return {
    show: (model, { part, done }) => {
      const bar = bars.get(model) ?? open(model)
      bar.update(Math.floor(done * 100), { model, part })
      if (done === 1) bar.stop()
    },
    stop: () => {
      for (const bar of bars.values()) bar.stop()
    },
  }
}
