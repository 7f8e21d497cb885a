import { setTimeout as sleep } from 'node:timers/promises'
import type { ErrorCode } from '#src/api/errors.ts'
import { createRandom, type Random } from '#src/local/demo/random.ts'
import { auditRun } from '../support/deployment/audit.ts'
import {
  CALL_KINDS,
  type CallKind,
  type CallOutcome,
  createCaller,
} from '../support/deployment/callers.ts'
import type { Deployment } from '../support/deployment/deployment.ts'
import { runCli } from '../support/run-cli.ts'

/** One thing that goes wrong, and when; both are milliseconds. */
export type Trouble = {
  readonly atMs: number
  readonly durationMs: number
  readonly name: string
  /** Which of several parts; modulo their number. */
  readonly part: number
  /** How far a clock is set, or how deep a reorganisation is: 0 ≤ size < 1. */
  readonly size: number
}

/** What a chaos run came to. */
export type ChaosReport = {
  readonly troubles: readonly Trouble[]
  readonly proven: number
  readonly encrypted: number
  /** Keyed calls that were answered, and keyed calls whose outcome is not known. */
  readonly keyed: number
  readonly unknown: number
  /** How often calls ended with each code, by kind. */
  readonly outcomes: ReadonlyMap<CallKind, ReadonlyMap<string, number>>
  readonly longestMs: number
  /** What must never be; empty when all is well. */
  readonly faults: readonly string[]
}

export const CHAOS_DEPLOYMENT = { gateways: 3, enclaves: 2, agents: 4 } as const

/** Callers of each kind. */
const CALLERS = 2
/** More than any limit of the service, and than any trouble lasts. */
const CALLER_TIMEOUT_MS = 85_000
const PAUSE_MAX_MS = 100
/** Of the trouble: between two, and how long one lasts. */
const EVERY_MAX_MS = 2_500
const DURATION_MAX_MS = 6_000
/** After the last trouble, until the load ends. */
const CALM_MS = 5_000
const CLOCK_STEP_MAX_MS = 3_600_000
const REORGANISATION_MAX = 6

type Act = (
  deployment: Deployment,
  trouble: Trouble,
) => Promise<(() => Promise<unknown> | undefined) | null>

/** What can go wrong: each gives how it is put right. */
const TROUBLES: Readonly<Record<string, Act>> = {
  'gateway killed': async ({ gateways }, { part }) => {
    const { program } = pick(gateways, part)
    await program.end('SIGKILL')
    return async () => program.start()
  },
  'gateway hung': async ({ gateways }, { part }) => {
    const { program } = pick(gateways, part)
    program.pause()
    return async () => program.resume()
  },
  'gateway clock stepped': async ({ gateways }, { part, size }) => {
    const gateway = pick(gateways, part)
    await gateway.setClock((2 * size - 1) * CLOCK_STEP_MAX_MS)
    return () => gateway.setClock(0)
  },
  'enclave killed': async ({ enclaves }, { part }) => {
    const { program } = pick(enclaves, part)
    await program.end('SIGKILL')
    return async () => program.start()
  },
  'enclave hung': async ({ enclaves }, { part }) => {
    const { program } = pick(enclaves, part)
    program.pause()
    return async () => program.resume()
  },
  'enclave clock stepped': async ({ enclaves }, { part, size }) => {
    const enclave = pick(enclaves, part)
    await enclave.setClock((2 * size - 1) * CLOCK_STEP_MAX_MS)
    return () => enclave.setClock(0)
  },
  'database killed': async ({ postgres }) => {
    await postgres.kill()
    return () => postgres.restart()
  },
  'database hung': async ({ postgres }) => {
    postgres.pause()
    return async () => postgres.resume()
  },
  'database disconnected': async ({ ways }) => {
    await ways.database.behave('refuse')
    return () => ways.database.behave('pass')
  },
  'database cut off': async ({ ways }) => {
    await ways.database.behave('hang')
    return () => ways.database.behave('pass')
  },
  // The program that starts the local chain also starts it again when it dies.
  'chain killed': async ({ chain }) => {
    if (chain.pid !== null) process.kill(chain.pid, 'SIGKILL')
    return null
  },
  'chain disconnected': async ({ ways }) => {
    await ways.chain.behave('refuse')
    return () => ways.chain.behave('pass')
  },
  'chain cut off': async ({ ways }) => {
    await ways.chain.behave('hang')
    return () => ways.chain.behave('pass')
  },
  'chain reorganised': async (deployment, { size }) => {
    const depth = 1 + Math.floor(size * REORGANISATION_MAX)
    // A chain that is just dead has no block to lose.
    await deployment.callChain('anvil_reorg', [depth, []]).catch(() => undefined)
    return null
  },
  'bus killed': async ({ nats }) => {
    await nats?.kill()
    return () => nats?.restart()
  },
  'bus disconnected': async ({ ways }) => {
    await ways.nats?.behave('refuse')
    return () => ways.nats?.behave('pass')
  },
  'bus cut off': async ({ ways }) => {
    await ways.nats?.behave('hang')
    return () => ways.nats?.behave('pass')
  },
}

/** Gives what will go wrong in a run of this length: the same for the same seed. */
export function planTroubles(seed: string, durationMs: number): readonly Trouble[] {
  const random = createRandom(seed)
  const names = Object.keys(TROUBLES)
  const planned: Trouble[] = []
  for (let atMs = 1_000; atMs < durationMs; atMs += random() * EVERY_MAX_MS)
    planned.push({
      atMs: Math.round(atMs),
      name: names[Math.floor(random() * names.length)] ?? '',
      part: Math.floor(random() * 6),
      durationMs: Math.round(200 + random() * (DURATION_MAX_MS - 200)),
      size: random(),
    })
  return planned
}

/**
 * Lets the troubles befall the deployment under load, puts everything right, and audits what
 * callers were given.
 */
export async function runChaos(
  deployment: Deployment,
  troubles: readonly Trouble[],
  seed: string,
): Promise<ChaosReport> {
  const load = startLoad(deployment, createRandom(`${seed} pauses`))
  await befall(deployment, troubles)
  await deployment.waitUntilReady()
  await sleep(CALM_MS)
  const calls = await load.stop()
  await deployment.waitUntilReady()
  const proven = calls.flatMap((call) => (call.proven === null ? [] : [call.proven]))
  const keyed = calls.filter(({ kind }) => kind === 'keyed')
  const counts = new Map(
    CALL_KINDS.map((kind) => {
      const codes = calls.filter((call) => call.kind === kind).map(({ code }) => code)
      return [kind, countOf(codes)] as const
    }),
  )
  return {
    troubles,
    proven: proven.length,
    encrypted: proven.filter(({ isEncrypted }) => isEncrypted).length,
    keyed: keyed.filter(({ code }) => code === 'ok').length,
    unknown: keyed.filter(({ code }) => code === OUTCOME_UNKNOWN).length,
    outcomes: counts,
    longestMs: Math.max(0, ...calls.map(({ beganMs, endedMs }) => endedMs - beganMs)),
    faults: [
      ...calls.flatMap(faultOf),
      ...(await auditRun(placeOf(deployment), proven)),
      ...(await auditKeyed(deployment, keyed)),
      ...(await auditLogs(deployment)),
    ],
  }
}

/** Each takes its time, also while others last; one part has one trouble at a time. */
async function befall(deployment: Deployment, troubles: readonly Trouble[]): Promise<void> {
  const beganMs = performance.now()
  const lasting = new Map<string, Promise<void>>()
  for (const trouble of troubles) {
    await sleep(Math.max(0, beganMs + trouble.atMs - performance.now()))
    const [kind = ''] = trouble.name.split(' ')
    const parts = { gateway: deployment.gateways, enclave: deployment.enclaves }[kind]
    const name = parts === undefined ? kind : `${kind} ${trouble.part % parts.length}`
    const before = lasting.get(name)
    const now = (async () => {
      await before
      const mend = await TROUBLES[trouble.name]?.(deployment, trouble)
      if (!mend) return
      await sleep(trouble.durationMs)
      await mend()
    })()
    lasting.set(name, now)
  }
  await Promise.all(lasting.values())
}

function startLoad(deployment: Deployment, random: Random) {
  const caller = createCaller(deployment, deployment.origin)
  const calls: CallOutcome[] = []
  let isOver = false
  const callers = CALL_KINDS.flatMap((kind) =>
    Array.from({ length: CALLERS }, async (_, number) => {
      for (let call = 0; !isOver; call++) {
        const content = `${kind} of caller ${number}, call ${call}`
        calls.push(await caller.call(kind, content, CALLER_TIMEOUT_MS))
        await sleep(random() * PAUSE_MAX_MS)
      }
    }),
  )
  return {
    async stop(): Promise<readonly CallOutcome[]> {
      isOver = true
      await Promise.all(callers)
      return calls
    },
  }
}

/**
 * What no trouble excuses: a caller who waits in vain, an answer to another call, an answer that a
 * checking client refuses for what it says, and an error that callers cannot understand.
 */
const INEXCUSABLE =
  /^(timeout|wrong answer|internal_server_error|idempotency_key_reused|status \d+|refused: (wrong_|not_in_log|asked_again|invalid_|other_|unexpected_|incomplete).*)$/

function faultOf({ kind, code, content, beganMs, endedMs }: CallOutcome): readonly string[] {
  const tookMs = Math.round(endedMs - beganMs)
  return INEXCUSABLE.test(code) ? [`${kind} call ended as ${code} in ${tookMs} ms: ${content}`] : []
}

const OUTCOME_UNKNOWN = 'idempotency_outcome_unknown' satisfies ErrorCode

/**
 * Asks again: what was answered has the same answer, from what is stored; what may have been made
 * is not made again. For each outcome of a call, the provider was asked once at most.
 */
async function auditKeyed(
  { provider, ...deployment }: Deployment,
  keyed: readonly CallOutcome[],
): Promise<readonly string[]> {
  const askedBefore = new Map(provider.asked)
  const caller = createCaller(deployment, deployment.origin)
  const faults: string[] = []
  for (const { content, code, proven } of keyed) {
    const again = await caller.call('keyed', content, CALLER_TIMEOUT_MS)
    const reported = `${content} (${code}, then ${again.code})`
    if (code === 'ok' && again.proven?.hash !== proven?.hash)
      faults.push(`another answer under the same key: ${reported}`)
    if (code === 'ok' && provider.asked.get(content) !== askedBefore.get(content))
      faults.push(`made again under the same key: ${reported}`)
    // Its record may have come to be stored since.
    if (code === OUTCOME_UNKNOWN && again.code !== 'ok' && again.code !== code)
      faults.push(`another outcome under the same key: ${reported}`)
    const times = provider.asked.get(content) ?? 0
    if (times > 1) faults.push(`made ${times} times under the same key: ${reported}`)
  }
  return faults
}

/** As an outsider audits: every log whole, no two histories, every head on the chain. */
async function auditLogs({ origin, key, rootFile, chain }: Deployment): Promise<readonly string[]> {
  const { stdout, stderr, code } = await runCli(
    ['audit', origin, '--root', rootFile, '--any-measurement', '--rpc', chain.rpcUrl, '--json'],
    { variables: { AFFIDAVIT_URL: origin, AFFIDAVIT_API_KEY: key } },
  )
  if (stdout === '') return [`audit: exit code ${code}: ${stderr}`]
  const { findings } = JSON.parse(stdout) as { readonly findings: readonly unknown[] }
  return findings.map((finding) => `audit: ${JSON.stringify(finding)}`)
}

function placeOf({ origin, key, chain }: Deployment) {
  return { origin, key, rpcUrl: chain.rpcUrl, contract: chain.contract }
}

function pick<Part>(parts: readonly Part[], number: number): Part {
  const part = parts[number % parts.length]
  if (part === undefined) throw new Error('expected a part')
  return part
}

function countOf(codes: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  for (const code of codes) counts.set(code, (counts.get(code) ?? 0) + 1)
  return counts
}

/** The report for people, a line for each thing. */
export function describeChaos(report: ChaosReport): string {
  const troubles = countOf(report.troubles.map(({ name }) => name))
  const listOf = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([name, count]) => `${name} ${count}`).join(', ')
  return [
    `troubles  ${report.troubles.length}: ${listOf(troubles)}`,
    ...[...report.outcomes].map(([kind, counts]) => `${kind}: ${listOf(counts)}`),
    `proven    ${report.proven}, ${report.encrypted} of them encrypted: each in the history, verified, anchored`,
    `keyed     ${report.keyed} answered; of ${report.unknown} the outcome is unknown`,
    `longest   ${(report.longestMs / 1000).toFixed(1)} s`,
    ...report.faults.map((fault) => `FAULT     ${fault}`),
    `faults    ${report.faults.length}`,
  ].join('\n')
}
