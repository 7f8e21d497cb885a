import path from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = path.join(import.meta.dirname, '../..')

/** Timers that a process keeps, without a wait for them at its end. */
const OF_THE_PROCESS: Readonly<Record<string, string>> = {
  'src/accounts/known-keys.ts': 'refreshes the keys in use',
  'src/accounts/claim-ends.ts': 'stores again what the database did not take',
  'src/accounts/limits/limiter.ts': 'writes counts a moment after their calls',
}

type Timer = { readonly made: Error; isOver(): boolean }

const timers = new Set<Timer>()
/** Places reported already: a loop goes on in later files, and the first one left it. */
const reported = new Set<string>()

/** Of a timer of Node.js: whether it was cleared or has run. */
type Destroyable = { readonly _destroyed: boolean }

/**
 * From now on, `setTimeout` and `setInterval` note who called them. Gives what puts the real ones
 * back.
 */
export function watchTimers(): () => void {
  const { setTimeout, setInterval } = globalThis
  globalThis.setTimeout = watchEach(setTimeout)
  globalThis.setInterval = watchEach(setInterval)
  return () => Object.assign(globalThis, { setTimeout, setInterval })
}

function watchEach<F extends typeof setTimeout | typeof setInterval>(start: F): F {
  const watched = (...words: Parameters<F>) => {
    const timer = Reflect.apply(start, globalThis, words)
    const { _destroyed } = timer as unknown as Destroyable
    if (_destroyed === false)
      timers.add({
        made: new Error('timer'),
        isOver: () => (timer as unknown as Destroyable)._destroyed,
      })
    return timer
  }
  return Object.assign(watched, start)
}

/** The lines of product code whose timers still run, once each in a process; forgets them. */
export function takeLeftTimers(): readonly string[] {
  const left = [...timers].filter((timer) => !timer.isOver()).flatMap(({ made }) => lineOf(made))
  timers.clear()
  const places = [...new Set(left)].filter((place) => !reported.has(place))
  for (const place of places) reported.add(place)
  return places
}

/** Who started a timer: the first line outside of Node.js, if it is one of the product. */
function lineOf({ stack = '' }: Error): readonly string[] {
  const lines = stack.split('\n').slice(2)
  const line = lines.find((one) => !one.includes('node:') && !one.includes('leftovers.ts')) ?? ''
  const [, place = '', at = ''] = line.match(/\(?((?:file:\/\/)?\/[^:()]+):(\d+):\d+\)?$/) ?? []
  if (place === '') return []
  const file = path.relative(ROOT, place.startsWith('file:') ? fileURLToPath(place) : place)
  const isOfProduct = /^(attestation|audit|client|enclave|packages|src)\//.test(file)
  return isOfProduct && !(file in OF_THE_PROCESS) ? [`${file}:${at}`] : []
}
