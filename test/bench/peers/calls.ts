import { type LoadResult, runLoad } from '../load.ts'
import { requestTo, type Target, warmUp } from '../targets.ts'
import { ENCLAVE, processesOf, type Stage, startCpu } from './stage.ts'
import { type Figures, median } from './table.ts'

const FIRST_CALLS = 200
const WARMUP_REQUESTS = 4_000
/** Each side is measured in this many slices, in turns with the other sides. */
const TURNS = 3
const SLICE_MS = 2_000
const SLICE_WARMUP_MS = 300

type Side = { readonly perSecond: number; readonly p50Ms: number; readonly cpuMs: Cpu }
type Cpu = ReadonlyMap<string, number>

/**
 * Whole calls of all sides: the first calls after the start of the service, then warm calls at one
 * connection and at 32.
 */
export async function measureCalls(
  stage: Stage,
  { noPortkey }: { readonly noPortkey: string },
): Promise<Figures> {
  const first = await runFirst(stage.verified)
  const sides = [
    stage.provider,
    stage.forwarder,
    stage.twoForwarders,
    ...(stage.portkey === null ? [] : [stage.portkey]),
    stage.plain,
    stage.verified,
  ]
  for (const side of sides) await warmUp(side, { requests: WARMUP_REQUESTS, stream: false })
  const single = await takeTurns(stage, { sides, connections: 1 })
  const crowd = await takeTurns(stage, { sides, connections: 32 })
  const of = (measured: ReadonlyMap<Target, Side>, target: Target) => {
    const side = measured.get(target)
    if (side === undefined) throw new Error(`expected figures of ${target.name}`)
    return side
  }
  const rate = (target: Target) => of(crowd, target).perSecond
  const providerP50Ms = of(single, stage.provider).p50Ms
  const cpu = [...of(crowd, stage.verified).cpuMs]
  const enclaveMs = cpu.find(([name]) => name === ENCLAVE)?.[1] ?? Number.NaN
  return {
    'verified-portkey':
      stage.portkey === null ? noPortkey : rate(stage.verified) / rate(stage.portkey),
    'verified-cpu': cpu.reduce((sum, [, ms]) => sum + ms, 0),
    'verified-warm': of(single, stage.verified).p50Ms - providerP50Ms,
    'verified-first': first.p50Ms - providerP50Ms,
    'plain-forwarder': rate(stage.plain) / rate(stage.forwarder),
    'plain-two': rate(stage.plain) / rate(stage.twoForwarders),
    'enclave-rate': 1_000 / enclaveMs,
  }
}

async function runFirst(target: Target): Promise<LoadResult> {
  const result = await runLoad({
    ...requestTo(target, { words: 8, stream: false }),
    connections: 1,
    warmupMs: 0,
    durationMs: 60_000,
    requestsMax: FIRST_CALLS,
  })
  refuseErrors(target, result)
  return result
}

async function takeTurns(
  { service }: Stage,
  {
    sides,
    connections,
  }: {
    readonly sides: readonly Target[]
    readonly connections: number
  },
): Promise<ReadonlyMap<Target, Side>> {
  const slices = new Map<Target, Side[]>(sides.map((side) => [side, []]))
  for (let turn = 0; turn < TURNS; turn += 1)
    for (const [side, measured] of slices) {
      const processes = processesOf(service)
      const readCpu = startCpu(processes.map(([pid]) => pid))
      const result = await runLoad({
        ...requestTo(side, { words: 8, stream: false }),
        connections,
        warmupMs: SLICE_WARMUP_MS,
        durationMs: SLICE_MS,
      })
      refuseErrors(side, result)
      const requests = result.requests * ((SLICE_MS + SLICE_WARMUP_MS) / SLICE_MS)
      const spent = readCpu()
      const cpuMs = new Map(
        processes.map(([pid, name]) => [name, (spent.get(pid) ?? 0) / requests] as const),
      )
      measured.push({ perSecond: result.requestsPerSecond, p50Ms: result.p50Ms, cpuMs })
    }
  return new Map(
    [...slices].map(([side, measured]) => {
      const names = [...(measured[0]?.cpuMs.keys() ?? [])]
      const cpuMs = new Map(
        names.map((name) => [name, median(measured.map((slice) => slice.cpuMs.get(name) ?? 0))]),
      )
      const perSecond = median(measured.map((slice) => slice.perSecond))
      const p50Ms = median(measured.map((slice) => slice.p50Ms))
      printSide(side, { connections, perSecond, p50Ms, cpuMs })
      return [side, { perSecond, p50Ms, cpuMs }]
    }),
  )
}

function printSide(
  { name }: Target,
  {
    connections,
    perSecond,
    p50Ms,
    cpuMs,
  }: {
    readonly connections: number
    readonly perSecond: number
    readonly p50Ms: number
    readonly cpuMs: Cpu
  },
): void {
  const parts = [...cpuMs]
    .filter(([, ms]) => ms >= 0.02)
    .map(([process, ms]) => `${process} ${ms.toFixed(2)}`)
  console.log(
    `  ${String(connections).padStart(2)} conn  ${name.padEnd(24)} ${perSecond.toFixed(0).padStart(6)} req/s  ` +
      `p50 ${p50Ms.toFixed(2).padStart(6)} ms${parts.length > 0 ? `  CPU ms a call: ${parts.join(', ')}` : ''}`,
  )
}

function refuseErrors({ name }: Target, { errors, requests }: LoadResult): void {
  if (errors > 0) throw new Error(`${errors} of ${requests} calls of ${name} failed`)
}
