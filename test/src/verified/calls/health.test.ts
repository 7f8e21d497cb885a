import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import {
  CHECK_TIMEOUT_MS,
  COMMITS_FAILING_MS_MAX,
  type CommitFault,
  createReadiness,
  READINESS_AGE_MAX_MS,
  type ReadinessChecks,
} from '#src/verified/calls/health.ts'

beforeEach(() => void vi.useFakeTimers())
afterEach(() => void vi.useRealTimers())

const WELL: ReadinessChecks = {
  database: async () => undefined,
  enclave: async () => 'document',
  attestation: async () => undefined,
  commits: () => ({ phase: 'following', failingForMs: 0, fault: null }),
  chain: () => ({ isChainFailing: false, pendingCount: 0 }),
  unreadableBlocks: () => ({ count: 0, reason: null }),
}

const failing = async () => Promise.reject(new Error('away'))

const commits = (
  phase: ReturnType<ReadinessChecks['commits']>['phase'],
  failingForMs = 0,
  name?: string,
): Pick<ReadinessChecks, 'commits'> => ({
  commits: () => ({
    phase,
    failingForMs,
    fault: name === undefined ? null : { name, message: '' },
  }),
})

it.each<[readonly string[], Partial<ReadinessChecks>]>([
  [[], {}],
  [['database'], { database: failing }],
  [['enclave', 'attestation'], { enclave: failing }],
  [['attestation'], { attestation: failing }],
  [['commits'], commits('stopped')],
  [['commits'], commits('opening')],
  [['commits'], commits('refusing')],
  [['commits'], commits('failing', COMMITS_FAILING_MS_MAX)],
  [[], commits('failing', COMMITS_FAILING_MS_MAX - 1)],
  [['database', 'commits'], { database: failing, ...commits('opening') }],
])('a gateway that lacks %j is not ready (%#)', async (expected, checks) => {
  expect((await createReadiness({ ...WELL, ...checks }, Date.now).read()).failing).toEqual(expected)
})

it.each<[CommitFault | null, Pick<ReadinessChecks, 'commits'>]>([
  [null, commits('following')],
  ['log_diverged', commits('refusing', 0, 'LogDiverged')],
  ['relayer_nonce_unknown', commits('failing', 0, 'NonceUnknown')],
  ['failing', commits('failing', 9_999, 'Error')],
])('the readiness check is told why commits fail: %s', async (commitFault, checks) => {
  const report = await createReadiness({ ...WELL, ...checks }, Date.now).read()
  expect(report).toMatchObject({ commitFault, failing: commitFault === null ? [] : ['commits'] })
})

it('a gateway that is told of a chain that is away, or of blocks that it cannot read, stays ready', async () => {
  const checks: ReadinessChecks = {
    ...WELL,
    chain: () => ({ isChainFailing: true, pendingCount: 7 }),
    unreadableBlocks: () => ({ count: 2, reason: 'unknown_receipts' }),
  }
  expect(await createReadiness(checks, Date.now).read()).toEqual({
    failing: [],
    chain: { isFailing: true, anchorsPending: 7 },
    commitFault: null,
    unreadableBlocks: { count: 2, reason: 'unknown_receipts' },
  })
})

it('the readiness check judges the document that the enclave gives', async () => {
  const seen: string[] = []
  const attestation = async (document: string) => void seen.push(document)
  await createReadiness({ ...WELL, attestation }, Date.now).read()
  expect(seen).toEqual(['document'])
})

it('the readiness check asks the parts once for all who ask within a second', async () => {
  const database = vi.fn(WELL.database)
  const readiness = createReadiness({ ...WELL, database }, Date.now)
  await Promise.all([readiness.read(), readiness.read()])
  vi.advanceTimersByTime(READINESS_AGE_MAX_MS - 1)
  await readiness.read()
  expect(database).toHaveBeenCalledTimes(1)
  vi.advanceTimersByTime(1)
  await readiness.read()
  expect(database).toHaveBeenCalledTimes(2)
})

it('the readiness check takes a part that hangs for failing, and does not ask it again before it answered', async () => {
  const answer = Promise.withResolvers<void>()
  const database = vi.fn(() => answer.promise)
  const readiness = createReadiness({ ...WELL, database }, Date.now)
  for (let times = 0; times < 3; times++) {
    const report = readiness.read()
    await vi.advanceTimersByTimeAsync(CHECK_TIMEOUT_MS)
    expect((await report).failing).toEqual(['database'])
  }
  expect(database).toHaveBeenCalledTimes(1)
  answer.resolve()
  await vi.advanceTimersByTimeAsync(READINESS_AGE_MAX_MS)
  expect((await readiness.read()).failing).toEqual([])
})
