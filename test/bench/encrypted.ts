import { Pool } from 'undici'
import { ENCAPSULATED_KEY_HEADER, RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { sealCall } from '#client/encryption.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { startPostgres } from '../support/postgres.ts'
import { quantile } from './load.ts'
import { listTree, nameProcess, readCpuSeconds } from './processes.ts'

/**
 * `node test/bench/encrypted.ts`: encrypted against plain verified calls, in turns, through a whole
 * service with Postgres. Calls are sealed before, and answers are not opened: the cost of these on
 * the caller's machine is reported separately, because the load generator shares this machine.
 */
const PATH = '/v1/verified/chat/completions'
const CONNECTIONS = 32
const ROUNDS = 5
const CALLS_PER_ROUND = 600
/** One call after the other, for the time of the first token. */
const SINGLE_CALLS = 60
const SEALED_SAMPLE = 200
const CPU_SHOWN_MS = 0.05

type Kind = { readonly isEncrypted: boolean; readonly stream: boolean }
type Prepared = { readonly headers: Readonly<Record<string, string>>; readonly body: Uint8Array }
type Measured = {
  readonly perSecond: number
  readonly firstMs: readonly number[]
  /** CPU of a call, ms, by process. */
  readonly cpuMs: ReadonlyMap<string, number>
}

if (import.meta.main) {
  const postgres = await startPostgres({ fsync: 'on' })
  try {
    const service = await startAffidavit({
      logLevel: 'warn',
      variables: { DATABASE_URL: postgres.url },
    })
    try {
      await measureAll(service)
    } finally {
      await service.stop()
    }
  } finally {
    await postgres.stop()
  }
}

/** Whole encrypted calls a second at 32 connections, as a share of plain verified ones. */
export async function compareEncrypted(service: Affidavit): Promise<number> {
  const perSecond = async (isEncrypted: boolean) => {
    const kind = { isEncrypted, stream: false }
    return (await run(service, { kind, connections: CONNECTIONS, count: CALLS_PER_ROUND }))
      .perSecond
  }
  const ratios: number[] = []
  for (let round = 0; round <= ROUNDS; round += 1) {
    const plain = await perSecond(false)
    const encrypted = await perSecond(true)
    // The first round warms up.
    if (round > 0) ratios.push(encrypted / plain)
  }
  return median(ratios)
}

async function measureAll(service: Affidavit): Promise<void> {
  const kinds = [false, true].flatMap((stream) =>
    [false, true].map((isEncrypted): Kind => ({ isEncrypted, stream })),
  )
  for (const connections of [CONNECTIONS, 1]) {
    const results = new Map<Kind, Measured[]>(kinds.map((kind) => [kind, []]))
    for (let round = 0; round <= ROUNDS; round += 1)
      for (const [kind, measured] of results) {
        const count = connections === 1 ? SINGLE_CALLS : CALLS_PER_ROUND
        const result = await run(service, { kind, connections, count })
        // The first round warms up.
        if (round > 0) measured.push(result)
      }
    report(results, connections)
  }
  await reportSealing(service)
}

async function run(
  service: Affidavit,
  options: { readonly kind: Kind; readonly connections: number; readonly count: number },
): Promise<Measured> {
  const calls = await prepare(service, options)
  const pool = new Pool(service.url, { connections: options.connections, pipelining: 1 })
  const firstMs: number[] = []
  const pids = listTree(service.pid)
  const before = readCpuSeconds(pids)
  const start = performance.now()
  const work = async () => {
    for (let call = calls.pop(); call !== undefined; call = calls.pop())
      firstMs.push(await send(pool, call))
  }
  await Promise.all(Array.from({ length: options.connections }, work))
  const tookMs = performance.now() - start
  const after = readCpuSeconds(pids)
  const cpuMs = new Map(
    pids.map((pid): [string, number] => [
      nameProcess(pid),
      (((after.get(pid) ?? 0) - (before.get(pid) ?? 0)) * 1_000) / options.count,
    ]),
  )
  await pool.close()
  return { perSecond: (options.count * 1_000) / tookMs, firstMs, cpuMs }
}

/** Gives the time until the first piece of its answer. */
async function send(pool: Pool, { headers, body }: Prepared): Promise<number> {
  const sent = performance.now()
  const reply = await pool.request({ method: 'POST', path: PATH, headers, body })
  let firstMs: number | null = null
  for await (const _ of reply.body) firstMs ??= performance.now() - sent
  const isSealed = reply.headers[RESPONSE_NONCE_HEADER] !== undefined
  if (reply.statusCode !== 200 || isSealed !== ENCAPSULATED_KEY_HEADER in headers)
    throw new Error(`a call failed with status ${reply.statusCode}`)
  return firstMs ?? performance.now() - sent
}

async function prepare(
  service: Affidavit,
  { kind, count }: { readonly kind: Kind; readonly count: number },
): Promise<Prepared[]> {
  const target = await readTarget(service)
  const headers = {
    'content-type': 'application/json',
    authorization: `Bearer ${service.apiKey}`,
  }
  const prepared: Prepared[] = []
  for (let at = 0; at < count; at += 1) {
    const body = Buffer.from(
      JSON.stringify({
        model: 'demo/echo',
        stream: kind.stream,
        messages: [{ role: 'user', content: 'Say in one sentence why evidence matters.' }],
        affidavit: {
          nonce: Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('hex'),
        },
      }),
    )
    if (!kind.isEncrypted) prepared.push({ headers, body })
    else {
      const sealed = await sealCall({ target, body, credential: null })
      prepared.push({ headers: { ...headers, ...sealed.headers }, body: sealed.body })
    }
  }
  return prepared
}

/** The enclave's newest key. This benchmark does not check that it belongs to the enclave. */
async function readTarget({ url }: Affidavit) {
  const { notaries } = (await (await fetch(`${url}/v1/notaries`)).json()) as {
    readonly notaries: readonly {
      readonly notary: string
      readonly encryption_keys: readonly { readonly public_key: string }[]
    }[]
  }
  const [entry] = notaries
  const [key] = entry?.encryption_keys ?? []
  if (entry === undefined || key === undefined) throw new Error('expected an encryption key')
  return { notary: entry.notary, publicKey: new Uint8Array(Buffer.from(key.public_key, 'hex')) }
}

function median(values: readonly number[]): number {
  return quantile(
    values.toSorted((left, right) => left - right),
    0.5,
  )
}

function report(results: ReadonlyMap<Kind, readonly Measured[]>, connections: number): void {
  for (const stream of [false, true]) {
    const of = (isEncrypted: boolean) => {
      const rounds =
        [...results].find(
          ([kind]) => kind.isEncrypted === isEncrypted && kind.stream === stream,
        )?.[1] ?? []
      return {
        perSecond: median(rounds.map(({ perSecond }) => perSecond)),
        firstMs: median(rounds.flatMap(({ firstMs }) => firstMs)),
        cpuMs: [...(rounds[0]?.cpuMs.keys() ?? [])]
          .map((name) => [name, median(rounds.map(({ cpuMs }) => cpuMs.get(name) ?? 0))] as const)
          .filter(([, ms]) => ms >= CPU_SHOWN_MS)
          .map(([name, ms]) => `${name} ${ms.toFixed(2)}`)
          .join(', '),
      }
    }
    const [plain, encrypted] = [of(false), of(true)]
    console.log(
      `  ${stream ? 'stream' : 'whole '} ${String(connections).padStart(2)} conn: plain ${plain.perSecond.toFixed(0)} calls/s, ` +
        `encrypted ${encrypted.perSecond.toFixed(0)} (${(encrypted.perSecond / plain.perSecond).toFixed(2)} ×); ` +
        `first byte ${plain.firstMs.toFixed(2)} ms, encrypted ${encrypted.firstMs.toFixed(2)} ` +
        `(${(encrypted.firstMs - plain.firstMs).toFixed(2)} more); ` +
        `CPU ms a call: plain ${plain.cpuMs}; encrypted ${encrypted.cpuMs}`,
    )
  }
}

/** The cost of sealing for the caller, after its keys are there. */
async function reportSealing(service: Affidavit): Promise<void> {
  const target = await readTarget(service)
  const body = new Uint8Array(1_000)
  for (const credential of [null, 'sk-a-credential-of-the-caller']) {
    const took: number[] = []
    for (let at = 0; at < SEALED_SAMPLE; at += 1) {
      const start = performance.now()
      await sealCall({ target, body, credential })
      took.push(performance.now() - start)
    }
    const what = credential === null ? 'a call' : 'a call and a credential'
    console.log(`  sealing ${what}, at the caller: ${median(took).toFixed(2)} ms`)
  }
}
