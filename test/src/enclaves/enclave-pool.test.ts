import { mkdtempSync } from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import { createServer, request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { EnclaveFault } from '#enclave/protocol/enclave-api.ts'
import { RelayerNonces } from '#src/chain/relayer-nonces.ts'
import type { CompletionAnswer } from '#src/enclaves/enclave-client.ts'
import type { EnclaveEndpoint } from '#src/enclaves/enclave-endpoint.ts'
import { EnclavePool } from '#src/enclaves/enclave-pool.ts'
import { ENCLAVES_MAX } from '#src/enclaves/settings.ts'
import { createLogger } from '#src/observability/logger.ts'
import { ALWAYS_OURS } from '#src/verified/commits/commit-turns.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createCommitter } from '#src/verified/commits/committer.ts'
import { createEnclaveCommits, type EnclaveCommits } from '#src/verified/commits/enclave-commits.ts'
import { createLogsStore } from '#src/verified/logs/logs-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../support/databases.ts'
import {
  answerWhole,
  SCRIPTED_DOMAIN,
  type ScriptedEnclave,
  send,
  startScriptedEnclave,
} from '../../support/scripted-enclave.ts'
import { ANCHORED_AT_ONCE, randomRelayer, signFake } from '../verified/commits/run-committer.ts'

const BODY = Buffer.from('{"model":"demo/echo","messages":[]}')
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const seal = answerWhole({ choices: [] })

let folder = ''
let enclaves: EnclavePool
let committed: EnclaveCommits
let running: ScriptedEnclave[] = []
/** Notaries that are refused, with the reason. */
const refused = new Map<string, string>()

/** In a folder of its own, which goes with the enclave. */
const pathOf = (name: string) => join(folder, name, 'enclave.sock')

async function startEnclave(name: string): Promise<ScriptedEnclave> {
  const enclave = await startScriptedEnclave({ socketPath: pathOf(name) })
  running.push(enclave)
  return enclave
}

function open(...names: readonly string[]): void {
  const commits = createCommitsStore(database)
  const records = createRecordsStore(database, SCRIPTED_DOMAIN.chainId)
  const logs = createLogsStore(database)
  const relayer = { address: randomRelayer(), countTransactions: async () => 0 }
  const nonces = new RelayerNonces({ commits, relayer })
  committed = createEnclaveCommits(records, ANCHORED_AT_ONCE)
  const follow = (endpoint: EnclaveEndpoint) => {
    const { client: enclave } = endpoint
    const committer = createCommitter({
      enclave,
      commits,
      records,
      nonces,
      log,
      now: Date.now,
      domain: SCRIPTED_DOMAIN,
      signAnchor: signFake,
      turns: ALWAYS_OURS,
      anchors: ANCHORED_AT_ONCE,
    })
    committer.start()
    return committed.follow(endpoint, committer, () => committer.stop())
  }
  enclaves = new EnclavePool({
    socketPaths: names.map(pathOf),
    callsMax: 8,
    follow,
    settleMs: 50,
    log,
    check: async ({ notary }) => (refused.has(notary) ? [refused.get(notary) ?? ''] : []),
    register: async () => undefined,
    isKnownLog: async (notary) => (await logs.find(notary)) !== null,
  })
}

const database = await useDatabase()

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'affidavit-enclaves-'))
  refused.clear()
  running = []
})
afterEach(async () => {
  await enclaves.stopFollowing()
  await enclaves.close()
  await Promise.all(running.map((enclave) => enclave.stop().catch(() => undefined)))
  await rm(folder, { recursive: true, force: true })
}, 60_000)

function complete({
  model = 'demo/echo',
  dialect = 'chat' as DialectName,
  notary = null as string | null,
  signal = new AbortController().signal,
} = {}) {
  const wanted = {
    model,
    dialect,
    notary,
    callFor: () => ({ context: '', provider: 'demo', credential: null }),
  }
  return enclaves.complete(wanted, BODY, signal)
}

function noticeOf(answer: CompletionAnswer) {
  if (answer.kind !== 'sealed') throw new Error(`expected a notice, got ${answer.kind}`)
  return answer.notice
}

/** Completes a call and waits until it is stored. */
async function store(): Promise<string> {
  const { notary, index } = noticeOf(await complete())
  await committed.waitFor(notary, index, AbortSignal.timeout(10_000))
  return notary
}

const stateOf = (name: string) =>
  enclaves.list().find(({ socketPath }) => socketPath === pathOf(name))?.state
const awaitState = (name: string, state: string) =>
  expect.poll(() => stateOf(name), { timeout: 10_000, interval: 20 }).toBe(state)

async function openBoth() {
  const both = [await startEnclave('one'), await startEnclave('two')] as const
  open('one', 'two')
  await Promise.all([awaitState('one', 'usable'), awaitState('two', 'usable')])
  return both
}

const refuseWith =
  (code: string, more: Pick<EnclaveFault, 'may_be_made'> = {}) =>
  ({ response }: Parameters<typeof seal>[0]) =>
    send(response, { status: 503, code, message: 'no', ...more }, 503)

it('calls over several enclaves are spread, and each is stored in the log of the enclave that made it', async () => {
  const [one, two] = await openBoth()
  const made = await Promise.all(Array.from({ length: 10 }, store))
  expect(made.filter((notary) => notary === one.notary)).toHaveLength(5)
  expect(made.filter((notary) => notary === two.notary)).toHaveLength(5)
  expect(committed.status()).toMatchObject({ phase: 'following', records: 10, waiting: 0 })
  expect(enclaves.list().map(({ calls }) => calls)).toEqual([0, 0])
})

it.each(['not_ready', 'too_busy', 'log_full'])(
  'calls over several enclaves go to another enclave when one says %s',
  async (code) => {
    const [one, two] = await openBoth()
    one.setScript(refuseWith(code))
    for (let call = 0; call < 4; call++) expect(await store()).toBe(two.notary)
    two.setScript(refuseWith(code))
    expect(await complete()).toMatchObject({ kind: 'fault', fault: { code } })
  },
)

it('calls over several enclaves are not tried again when they may have been begun', async () => {
  const [one, two] = await openBoth()
  for (const enclave of [one, two]) enclave.setScript(({ response }) => void response.destroy())
  await expect(complete()).rejects.toMatchObject({ code: 'unavailable', wasSent: true })
  expect(one.calls.length + two.calls.length).toBe(1)
  for (const enclave of [one, two])
    enclave.setScript(refuseWith('not_ready', { may_be_made: true }))
  expect(await complete()).toMatchObject({ kind: 'fault', fault: { may_be_made: true } })
  expect(one.calls.length + two.calls.length).toBe(2)
})

it('calls over several enclaves stay with the enclave that they are bound to', async () => {
  const [one, two] = await openBoth()
  for (let call = 0; call < 4; call++)
    expect(await complete({ notary: two.notary })).toMatchObject({
      kind: 'sealed',
      notice: { notary: two.notary },
    })
  two.setScript(refuseWith('not_ready'))
  expect(await complete({ notary: two.notary })).toMatchObject({ kind: 'fault' })
  await two.stop()
  await expect(complete({ notary: two.notary })).rejects.toMatchObject({ code: 'unavailable' })
  expect(one.calls).toEqual([])
})

it('calls over several enclaves are not repeated at the successor of the enclave that they are bound to', async () => {
  const [one, two] = [await startEnclave('one'), await startEnclave('two')]
  let current = one
  const server = createServer((request, response) => {
    const { method, url, headers } = request
    const { socketPath } = current
    const onward = httpRequest({ socketPath, method, path: url, headers }, (reply) => {
      response.writeHead(reply.statusCode ?? 500, reply.headers)
      reply.pipe(response)
    })
    request.pipe(onward.on('error', () => response.destroy()))
  })
  await mkdir(join(folder, 'both'))
  await new Promise<void>((resolve) => server.listen(pathOf('both'), resolve))
  running.push({ ...one, stop: async () => void server.close().closeAllConnections() })
  one.setScript((arrived) => {
    current = two
    refuseWith('provider_mismatch')(arrived)
  })
  open('both')
  await awaitState('both', 'usable')
  expect(await complete({ notary: one.notary })).toMatchObject({ kind: 'fault' })
  expect(await enclaves.chooseNotary('demo/echo', 'chat')).toBe(two.notary)
  expect([one.calls.length, two.calls.length]).toEqual([1, 0])
})

it('calls over several enclaves go to the enclave that has the dialect for the model', async () => {
  const [one, two] = await openBoth()
  const chat = { name: 'demo', origin: 'http://127.0.0.1:9', path: '/', models: ['demo/*'] }
  one.setProviders([chat])
  two.setProviders([{ ...chat, endpoints: { messages: { path: '/' } } }])
  await enclaves.recheck()
  for (let call = 0; call < 3; call++) {
    expect(await enclaves.chooseNotary('demo/echo', 'messages')).toBe(two.notary)
    await complete({ dialect: 'messages' })
  }
  expect([one.calls.length, two.calls.length]).toEqual([0, 3])
})

it('an enclave that is refused gets no call, and its log is not followed', async () => {
  const one = await startEnclave('one')
  refused.set(one.notary, 'expected another release')
  open('one')
  await awaitState('one', 'refused')
  await expect(complete()).rejects.toMatchObject({ wasSent: false })
  expect(enclaves.list()).toMatchObject([{ fault: 'expected another release', committed: null }])
  expect([one.calls, enclaves.notaries(), enclaves.identities()]).toEqual([[], [], []])
  expect(await enclaves.find(one.notary)).toBeNull()
  await expect(enclaves.find(null)).rejects.toMatchObject({ code: 'unavailable' })
  expect(await enclaves.awaitUsable(10)).toBe(false)
})

it('an enclave that is refused has what it sealed before committed', async () => {
  const [one] = await openBoth()
  const answer = await complete({ notary: one.notary })
  refused.set(one.notary, 'revoked')
  await enclaves.recheck()
  const { notary, index } = noticeOf(answer)
  expect(await committed.waitFor(notary, index, AbortSignal.timeout(10_000))).toMatchObject({
    index,
  })
  await awaitState('one', 'refused')
  expect(enclaves.countStates().get('usable')).toBe(1)
})

it('draining lets a running call finish, commits it, and takes no new one', async () => {
  const [one, two] = await openBoth()
  const gate = Promise.withResolvers<void>()
  one.setScript(async (arrived) => {
    await gate.promise
    await seal(arrived)
  })
  const slow = complete({ notary: one.notary })
  await expect.poll(() => one.calls.length).toBe(1)
  expect(enclaves.drain(pathOf('one'))).toBe('done')
  expect(await enclaves.remove(pathOf('one'))).toBe('in_use')
  for (let call = 0; call < 4; call++) expect(await store()).toBe(two.notary)
  await expect(complete({ notary: one.notary })).rejects.toMatchObject({ wasSent: false })
  expect(stateOf('one')).toBe('draining')
  gate.resolve()
  const answer = await slow
  await awaitState('one', 'drained')
  const { notary, index } = noticeOf(answer)
  expect(await committed.waitFor(notary, index, AbortSignal.timeout(1_000))).toMatchObject({
    index,
  })
  const drained = await (await enclaves.find(notary))?.identity()
  expect(drained?.log).toEqual({ size: 1, acknowledged: 1 })
})

it('draining is told of endpoints that there are', async () => {
  open('one')
  expect(enclaves.drain(pathOf('two'))).toBe('unknown')
  expect(await enclaves.remove(pathOf('two'))).toBe('unknown')
  for (let at = 1; at < ENCLAVES_MAX; at++)
    expect(await enclaves.add(pathOf(`n${at}`))).toBe('done')
  expect(await enclaves.add(pathOf('two'))).toBe('limit')
})
