import { setTimeout as sleep } from 'node:timers/promises'
import { openStreams, runStreams } from '../stream-load.ts'
import { requestTo, type Target, warmUp } from '../targets.ts'
import {
  ENCLAVE,
  GATEWAY,
  PROVIDER,
  pidOf,
  processesOf,
  residentBytes,
  type Stage,
  startCpu,
} from './stage.ts'
import { type Figures, median } from './table.ts'

const WORDS = 2_300
const STREAMS = 8
const TURNS = 3
const WARMUP_STREAMS = 300

type Process = readonly [pid: number, name: string]

/** Chunks a second of all sides: eight streams at once, as fast as each side can. */
export async function measureChunks(stage: Stage): Promise<Figures> {
  const sides = [stage.provider, stage.forwarder, stage.twoForwarders, stage.plain, stage.verified]
  for (const side of sides) {
    await warmUp(side, { requests: WARMUP_STREAMS, stream: true })
    await countChunks(side)
  }
  const rates = new Map(sides.map((side) => [side, [] as number[]]))
  const processes: readonly Process[] = [
    ...processesOf(stage.service),
    [stage.forwarderPid, 'forwarder'],
  ]
  const cpu = new Map(sides.map((side) => [side, new Map<string, number>()]))
  for (let turn = 0; turn < TURNS; turn += 1)
    for (const [side, measured] of rates) {
      const readCpu = startCpu(processes.map(([pid]) => pid))
      measured.push(await countChunks(side))
      const spent = readCpu()
      for (const [pid, name] of processes)
        cpu.get(side)?.set(name, (cpu.get(side)?.get(name) ?? 0) + (spent.get(pid) ?? 0))
    }
  const thousands = (TURNS * STREAMS * WORDS) / 1_000
  for (const [side, measured] of rates) {
    const parts = [...(cpu.get(side) ?? [])]
      .map(([name, ms]) => ({ name, ms: ms / thousands }))
      .filter(({ ms }) => ms >= 0.3)
    console.log(
      `  ${side.name.padEnd(24)} ${median(measured).toFixed(0).padStart(7)} chunks/s  ` +
        `CPU ms for 1,000 chunks: ${parts.map(({ name, ms }) => `${name} ${ms.toFixed(1)}`).join(', ')}`,
    )
  }
  const rate = (side: Target) => median(rates.get(side) ?? [])
  return {
    'chunks-verified': rate(stage.verified) / rate(stage.forwarder),
    'chunks-plain': rate(stage.plain) / rate(stage.forwarder),
  }
}

async function countChunks(side: Target): Promise<number> {
  const streams = openStreams(requestTo(side, { words: WORDS, stream: true }))
  const start = performance.now()
  await streams.open(STREAMS)
  await streams.ended()
  const tookMs = performance.now() - start
  const { events, failed } = streams.load()
  if (failed > 0 || events < STREAMS * WORDS)
    throw new Error(
      `${failed} of ${side.name} failed (${streams.failure()}), ${events} chunks came`,
    )
  return (events * 1_000) / tookMs
}

/** Pause of the provider before each chunk in the measurements below: 20 chunks a second. */
export const PACE_MS = 50
const FIRST_STREAMS = 20

/** The time of the first token at one connection, beyond the provider's own. */
export async function measureFirstToken(stage: Stage): Promise<Figures> {
  const sides = [stage.provider, stage.forwarder, stage.twoForwarders, stage.plain, stage.verified]
  const firsts = new Map(sides.map((side) => [side, [] as number[]]))
  for (const side of sides) await warmUp(side, { requests: WARMUP_STREAMS / 10, stream: true })
  for (let turn = 0; turn < FIRST_STREAMS; turn += 1)
    for (const [side, measured] of firsts) {
      const request = requestTo(side, { words: 1, stream: true })
      const { errors, firstP50Ms } = await runStreams({ ...request, connections: 1, streams: 1 })
      if (errors > 0) throw new Error(`a stream of ${side.name} failed`)
      measured.push(firstP50Ms)
    }
  const added = (side: Target) =>
    median(firsts.get(side) ?? []) - median(firsts.get(stage.provider) ?? [])
  console.log(
    `  added to the first token: forwarder ${added(stage.forwarder).toFixed(2)} ms, two ${added(stage.twoForwarders).toFixed(2)}, ` +
      `plain chat ${added(stage.plain).toFixed(2)}, verified ${added(stage.verified).toFixed(2)}`,
  )
  return { 'plain-first': added(stage.plain) }
}

const PACED_STREAMS = 500
const PACED_WARMUP_MS = 4_000
const PACED_MS = 6_000

/**
 * CPU of the forwarder, and of all processes of the service, for streams that the provider paces.
 */
export async function measurePaced(stage: Stage): Promise<Figures> {
  const ours = processesOf(stage.service).filter(([, name]) => name !== PROVIDER)
  const bare = await runPaced(stage.forwarder, [[stage.forwarderPid, 'forwarder']])
  const verified = await runPaced(stage.verified, ours)
  if (typeof bare === 'string') return { 'paced-cpu': bare }
  return { 'paced-cpu': typeof verified === 'string' ? verified : verified / bare }
}

async function runPaced(side: Target, processes: readonly Process[]): Promise<number | string> {
  const words = ((PACED_WARMUP_MS + PACED_MS) / PACE_MS) * 2
  const streams = openStreams(requestTo(side, { words, stream: true }))
  try {
    await streams.open(PACED_STREAMS)
    await sleep(PACED_WARMUP_MS)
    const before = streams.load().events
    const readCpu = startCpu(processes.map(([pid]) => pid))
    const start = performance.now()
    await sleep(PACED_MS)
    const spent = readCpu()
    const seconds = (performance.now() - start) / 1_000
    const { events, failed } = streams.load()
    if (failed > 0)
      return `${failed} of ${PACED_STREAMS} streams failed: ${streams.failure() ?? ''}`
    const thousands = (events - before) / 1_000
    const parts = processes
      .map(([pid, name]) => ({ name, ms: (spent.get(pid) ?? 0) / thousands }))
      .filter(({ ms }) => ms >= 0.1)
    const total = parts.reduce((sum, { ms }) => sum + ms, 0)
    console.log(
      `  ${side.name.padEnd(24)} ${((events - before) / seconds / PACED_STREAMS).toFixed(1)} chunks/s a stream, ` +
        `CPU ms for 1,000 chunks ${total.toFixed(1)} (${parts.map(({ name, ms }) => `${name} ${ms.toFixed(1)}`).join(', ')})`,
    )
    return total
  } finally {
    await streams.close()
  }
}

const STEP = 250
const OPEN_MAX = 5_000
const STEP_SETTLE_MS = 1_500
const STEP_MS = 2_000
/** A side that delivers a smaller share of the due chunks has fallen behind. */
const CARRIED_SHARE = 0.95

/**
 * Opens more and more verified streams of 20 chunks a second, until their chunks come slower, or
 * streams are refused.
 */
export async function measureOpen(stage: Stage): Promise<Figures> {
  const pids = { gateway: pidOf(stage.service, GATEWAY), enclave: pidOf(stage.service, ENCLAVE) }
  const idle = { gateway: residentBytes(pids.gateway), enclave: residentBytes(pids.enclave) }
  const words = (OPEN_MAX / STEP) * ((STEP_SETTLE_MS + STEP_MS) / PACE_MS) * 1.5
  const streams = openStreams(requestTo(stage.verified, { words, stream: true }))
  let carried = 0
  let perStream = { gateway: 0, enclave: 0 }
  let end = `carried ${OPEN_MAX}`
  try {
    while (carried < OPEN_MAX) {
      await streams.open(STEP)
      await sleep(STEP_SETTLE_MS)
      const { events: before, open, failed } = streams.load()
      const start = performance.now()
      await sleep(STEP_MS)
      const due = (open * (performance.now() - start)) / PACE_MS
      const share = (streams.load().events - before) / due
      if (failed > 0 || share < CARRIED_SHARE) {
        end =
          failed > 0
            ? `${failed} failed: ${streams.failure()}`
            : `${Math.round(share * 100)} % of the chunks came`
        end = `${end} at ${carried + STEP}`
        break
      }
      carried = open
      const bytesOf = (name: 'gateway' | 'enclave') =>
        (residentBytes(pids[name]) - idle[name]) / 1_000 / open
      perStream = { gateway: bytesOf('gateway'), enclave: bytesOf('enclave') }
    }
  } finally {
    await streams.close()
  }
  console.log(
    `  ${carried} open streams at 20 chunks/s (${end}); KB each: gateway ${perStream.gateway.toFixed(0)}, enclave ${perStream.enclave.toFixed(0)}`,
  )
  return { 'open-carried': carried }
}

const STEP_PAUSE_MS = 500

/** Long enough that all streams are opened and measured before the second chunk. */
export const SLOW_PACE_MS = 4_000

/** Opens as many streams as the aim at once, with few chunks each: the memory of each stream. */
export async function measureOpenMemory(stage: Stage): Promise<Figures> {
  const pids = { gateway: pidOf(stage.service, GATEWAY), enclave: pidOf(stage.service, ENCLAVE) }
  // One round on all connections of the load: the provider pauses before each answer.
  await warmUp(stage.verified, { requests: 1, stream: false })
  await sleep(1_000)
  const idle = { gateway: residentBytes(pids.gateway), enclave: residentBytes(pids.enclave) }
  const streams = openStreams(requestTo(stage.verified, { words: 20, stream: true }))
  try {
    const opened: Promise<void>[] = []
    // A stream gets its head with its first chunk, so the loop does not wait for each stream.
    while (opened.length * STEP < OPEN_MAX) {
      opened.push(streams.open(STEP))
      await sleep(STEP_PAUSE_MS)
    }
    await Promise.all(opened)
    await sleep(SLOW_PACE_MS)
    const { open, failed } = streams.load()
    const kilobytes = (name: 'gateway' | 'enclave') =>
      (residentBytes(pids[name]) - idle[name]) / 1_000 / open
    console.log(
      `  ${open} open at once, ${failed} refused; KB each: gateway ${kilobytes('gateway').toFixed(0)}, enclave ${kilobytes('enclave').toFixed(0)}`,
    )
    return {
      'open-streams': open,
      'open-gateway': kilobytes('gateway'),
      'open-enclave': kilobytes('enclave'),
    }
  } finally {
    await streams.close()
  }
}
