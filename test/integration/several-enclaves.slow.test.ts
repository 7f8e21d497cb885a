import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ProtocolError } from 'ehbp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { connectToGateway } from '#src/cli/operations.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import {
  type EnclaveFleet,
  entryNamed,
  type FleetEnclave,
  startEnclaveFleet,
} from '../support/enclave-fleet.ts'
import { createEncryptedFetch, type EncryptedFetch } from '../support/encrypted-fetch.ts'
import { readMetrics } from '../support/read-metrics.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'

const COMPLETIONS = '/v1/verified/chat/completions'
const CALLERS = 12
/**
 * Codes that a caller may get when an enclave dies during the call: each says that there is no
 * proof.
 */
const CLEAR_ERRORS = ['enclave_unavailable', 'completion_lost', 'commit_delayed', 'not_ready']

/**
 * The package's word for an answer in the clear: the call reached no enclave, or the enclave lost
 * it.
 */
const IN_THE_CLEAR = 'in the clear'

type Answer = {
  readonly hash: string
  readonly public_key: string
  readonly tx_hash: string
  readonly receipt: { readonly encrypted: boolean }
}
type Outcome =
  | { readonly kind: 'answer'; readonly answer: Answer }
  | { readonly kind: 'error'; readonly code: string }

let fleet: EnclaveFleet
let service: Affidavit
let one: FleetEnclave
let two: FleetEnclave

const headers = () => ({
  authorization: `Bearer ${service.apiKey}`,
  'content-type': 'application/json',
})
const cli = (...words: readonly string[]) =>
  runCli(words, {
    variables: {
      AFFIDAVIT_URL: service.url,
      AFFIDAVIT_API_KEY: service.apiKey,
      DATA_DIR: service.dataFolder,
    },
  })

async function ask(text: string, send: EncryptedFetch = fetch): Promise<Outcome> {
  const body = JSON.stringify({ model: 'demo/echo', messages: [{ role: 'user', content: text }] })
  const given = {
    method: 'POST',
    headers: headers(),
    body,
    signal: AbortSignal.timeout(90_000),
  }
  let reply: Response
  try {
    reply = await send(service.url + COMPLETIONS, given)
  } catch (error) {
    if (error instanceof ProtocolError) return { kind: 'error', code: IN_THE_CLEAR }
    throw error
  }
  const value = (await reply.json()) as Answer & { readonly error?: { readonly code: string } }
  return reply.status === 200
    ? { kind: 'answer', answer: value }
    : { kind: 'error', code: value.error?.code ?? `status ${reply.status}` }
}

/**
 * Makes calls without a pause, half of them encrypted, until `stop`, which gives the outcomes of
 * all.
 */
function startLoad(): {
  readonly outcomes: Outcome[]
  /** Resolves when each caller, on average, had some more outcomes. */
  goOn(): Promise<void>
  stop(): Promise<readonly Outcome[]>
} {
  const outcomes: Outcome[] = []
  let isOver = false
  const encrypted = createEncryptedFetch(() => service.url, 'notaries')
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    const send = caller % 2 === 0 ? fetch : encrypted
    for (let call = 0; !isOver; call++)
      outcomes.push(await ask(`caller ${caller}, call ${call}`, send))
  })
  const goOn = async () => {
    const enough = outcomes.length + CALLERS * 4
    await until('calls went on', () => outcomes.length > enough, 60_000)
  }
  const stop = async () => {
    isOver = true
    await Promise.all(callers)
    return outcomes
  }
  return { outcomes, goOn, stop }
}

type Log = {
  readonly notary: string
  readonly size: number
  readonly head: { readonly size: number } | null
}

async function get<Body>(path: string): Promise<Body> {
  const reply = await fetch(service.url + path, { headers: headers() })
  expect(reply.status).toBe(200)
  return (await reply.json()) as Body
}

const logOf = (notary: string) => get<Log>(`/v1/log/${notary}`)
const notaries = async () =>
  (await get<{ notaries: readonly { notary: string; status: string }[] }>('/v1/notaries')).notaries

/** Lists them in the way of the command line. */
async function listEnclaves() {
  const gateway = await connectToGateway(service.dataFolder)
  if (gateway === null) throw new Error('expected the gateway to answer at its control socket')
  const { enclaves } = await gateway.enclaves.list({}).finally(() => gateway.close())
  return enclaves
}

const stateOf = async ({ url }: FleetEnclave) =>
  (await listEnclaves()).find((enclave) => enclave.url === url)?.state

async function countState(state: string): Promise<number | undefined> {
  const text = await (await fetch(service.metricsUrl)).text()
  return readMetrics(text).find(
    ({ name, labels }) => name === 'affidavit_enclaves' && labels.state === state,
  )?.value
}

beforeAll(async () => {
  fleet = await startEnclaveFleet()
  await fleet.accept([entryNamed('a1'), entryNamed('a2')])
  ;[one, two] = await Promise.all([fleet.start('one', 'a1'), fleet.start('two', 'a1')])
  service = await startAffidavit({
    dataFolder: join(fleet.folder, 'data'),
    variables: {
      // The last enclave does not run: the gateway starts without it.
      ENCLAVE_URL: `${one.url},${two.url},unix:${join(fleet.folder, 'nobody.sock')}`,
      METRICS_PORT: '0',
      HEAD_ATTESTATION_INTERVAL_MS: '1000',
      ...fleet.releaseVariables,
    },
  })
})
afterAll(async () => {
  await service?.stop()
  await fleet?.stop()
  await rm(fleet.folder, { recursive: true, force: true })
})

describe('a gateway with several enclaves', () => {
  it('a gateway with several enclaves starts without an enclave that is out of reach, and says so', async () => {
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200)
    expect((await listEnclaves()).map(({ state }) => state)).toEqual([
      'usable',
      'usable',
      'unreachable',
    ])
    expect([await countState('usable'), await countState('unreachable')]).toEqual([2, 1])
    expect(service.output().stderr).toContain('enclave out of reach')
    expect((await notaries()).map(({ notary }) => notary)).toEqual([one.notary, two.notary])
    const gone = await cli('enclaves', 'remove', `unix:${join(fleet.folder, 'nobody.sock')}`)
    expect(gone.code).toBe(0)
    expect((await cli('enclaves', 'remove', one.url)).stderr).toContain('drain it first')
  })

  it('a gateway never uses an enclave with other measurements than those of an accepted release', async () => {
    const other = await fleet.start('other', 'bb')
    const added = await cli('enclaves', 'add', other.url)
    expect([added.code, added.stderr]).toEqual([
      1,
      expect.stringContaining('measurements of an accepted release'),
    ])
    await Promise.all(Array.from({ length: 20 }, (_, at) => ask(`not for the other ${at}`)))
    expect(await stateOf(other)).toBe('refused')
    expect((await fetch(`${service.url}/v1/log/${other.notary}`)).status).toBe(404)
    expect((await notaries()).map(({ notary }) => notary)).not.toContain(other.notary)
    const { logs } = await get<{ logs: readonly Log[] }>('/v1/log')
    expect(logs.map(({ notary }) => notary).toSorted()).toEqual([one.notary, two.notary].toSorted())
    expect((await cli('enclaves', 'remove', other.url)).code).toBe(0)
    await other.kill()
  })

  it('a gateway answers every caller while one enclave is drained, one added and one killed; all records verify', {
    // When a completion is lost with its enclave, its caller gets an error after a minute.
    timeout: 240_000,
  }, async () => {
    const load = startLoad()
    await load.goOn()
    const three = await fleet.start('three', 'a2')
    expect(await cli('enclaves', 'add', three.url)).toMatchObject({ code: 0 })
    const drained = await cli('enclaves', 'drain', two.url)
    expect([drained.code, drained.stderr]).toEqual([0, expect.stringContaining('may be stopped')])
    const { size } = await logOf(two.notary)
    expect(size).toBeGreaterThan(0)
    // All its completions were fetched, so it ends at once and in good order.
    expect(await two.stop()).toBe(0)
    const failedBefore = load.outcomes.filter(({ kind }) => kind === 'error')
    expect(failedBefore).toEqual([])
    await load.goOn()
    await one.kill()
    await load.goOn()
    const outcomes = await load.stop()

    const answers = outcomes.flatMap((outcome) =>
      outcome.kind === 'answer' ? [outcome.answer] : [],
    )
    const codes = outcomes.flatMap((outcome) => (outcome.kind === 'error' ? [outcome.code] : []))
    const known = [...CLEAR_ERRORS, IN_THE_CLEAR]
    expect(codes.filter((code) => !known.includes(code))).toEqual([])
    expect(codes.length).toBeLessThanOrEqual(CALLERS)
    expect((await logOf(two.notary)).size).toBe(size)
    const stored = new Map<string, Answer>()
    for (const { hash, public_key: key, tx_hash: txHash } of answers) {
      const record = stored.get(hash) ?? (await get<Answer>(`${COMPLETIONS}/${hash}`))
      stored.set(hash, record)
      expect([record.public_key, record.tx_hash]).toEqual([key, txHash])
    }
    expect(new Set(answers.map(({ public_key: key }) => key)).size).toBe(3)
    const encrypted = answers.filter(({ receipt }) => receipt.encrypted)
    expect(new Set(encrypted.map(({ public_key: key }) => key)).size).toBe(3)
    expect(await stateOf(one)).toBe('unreachable')
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200)
  })

  it('a gateway with several enclaves lands all anchors, and an auditor finds nothing in any log', async () => {
    const { logs } = await get<{ logs: readonly Log[] }>('/v1/log')
    expect(logs).toHaveLength(3)
    for (const { notary } of logs)
      await expect
        .poll(
          async () => {
            const { size, head } = await logOf(notary)
            return size - (head?.size ?? 0)
          },
          { timeout: 30_000 },
        )
        .toBe(0)
    const { ENCLAVE_RELEASES_FILE: file = '', RELEASE_KEY: key = '' } = fleet.releaseVariables
    const trust = ['--root', fleet.rootFile, '--release', file, '--release-key', key]
    const { code, stdout } = await cli(
      'audit',
      service.url,
      ...trust,
      '--rpc',
      service.rpcUrl,
      '--json',
    )
    const report = JSON.parse(stdout)
    expect({ code, findings: report.findings }).toEqual({ code: 0, findings: [] })
    expect(report.logs.map(({ notary }: Log) => notary).toSorted()).toEqual(
      logs.map(({ notary }) => notary).toSorted(),
    )
    for (const log of report.logs) expect(log).toMatchObject({ complete: true, findings: [] })
  })

  it('a gateway checks the enclave that restarts behind a socket before it uses it', async () => {
    await cli('enclaves', 'remove', two.url)
    const worse = await fleet.start('one', 'bb')
    await expect.poll(() => stateOf(one), { timeout: 15_000 }).toBe('refused')
    for (let call = 0; call < 6; call++) expect((await ask(`after ${call}`)).kind).toBe('answer')
    expect((await fetch(`${service.url}/v1/log/${worse.notary}`)).status).toBe(404)
    await worse.kill()
    const better = await fleet.start('one', 'a2')
    await expect.poll(() => stateOf(better), { timeout: 15_000 }).toBe('usable')
    expect((await notaries()).map(({ notary }) => notary)).toContain(better.notary)
  })
})
