import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
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
  chain: () => ({ isChainFailing: false, waitingCount: 0 }),
  unreadableBlocks: () => ({ count: 0, reason: null }),
}

const failing = async () => Promise.reject(new Error('away'))

/** What fails with these checks. */
async function failingOf(checks: Partial<ReadinessChecks>): Promise<readonly string[]> {
  return (await createReadiness({ ...WELL, ...checks }, Date.now).read()).failing
}

describe('ready is who', () => {
  it('a gateway that has all parts is ready', async () => {
    expect(await failingOf({})).toEqual([])
  })

  it.each<[readonly string[], Partial<ReadinessChecks>]>([
    [['database'], { database: failing }],
    [['enclave', 'attestation'], { enclave: failing }],
    [['attestation'], { attestation: failing }],
    [['commits'], { commits: () => ({ phase: 'stopped', failingForMs: 0, fault: null }) }],
    [['commits'], { commits: () => ({ phase: 'opening', failingForMs: 0, fault: null }) }],
    [['commits'], { commits: () => ({ phase: 'refusing', failingForMs: 0, fault: null }) }],
    [
      ['commits'],
      { commits: () => ({ phase: 'failing', failingForMs: COMMITS_FAILING_MS_MAX, fault: null }) },
    ],
    [
      [],
      {
        commits: () => ({
          phase: 'failing',
          failingForMs: COMMITS_FAILING_MS_MAX - 1,
          fault: null,
        }),
      },
    ],
    [
      ['database', 'commits'],
      { database: failing, commits: () => ({ phase: 'opening', failingForMs: 0, fault: null }) },
    ],
  ])('a gateway that lacks %j is not ready', async (expected, checks) => {
    expect(await failingOf(checks)).toEqual(expected)
  })

  it.each<[CommitFault | null, ReturnType<ReadinessChecks['commits']>]>([
    [null, { phase: 'following', failingForMs: 0, fault: null }],
    [
      'log_diverged',
      { phase: 'refusing', failingForMs: 0, fault: { name: 'LogDiverged', message: '' } },
    ],
    [
      'relayer_nonce_unknown',
      { phase: 'failing', failingForMs: 0, fault: { name: 'NonceUnknown', message: '' } },
    ],
    ['failing', { phase: 'failing', failingForMs: 9_999, fault: { name: 'Error', message: '' } }],
  ])('the readiness check is told why commits fail: %s', async (expected, status) => {
    const report = await createReadiness({ ...WELL, commits: () => status }, Date.now).read()
    expect([report.commitFault, report.failing]).toEqual([
      expected,
      expected === null ? [] : ['commits'],
    ])
  })

  it('a gateway that is told of a chain that is away stays ready', async () => {
    const checks: ReadinessChecks = {
      ...WELL,
      chain: () => ({ isChainFailing: true, waitingCount: 7 }),
    }
    expect(await createReadiness(checks, Date.now).read()).toEqual({
      failing: [],
      chain: { isFailing: true, anchorsWaiting: 7 },
      commitFault: null,
      unreadableBlocks: { count: 0, reason: null },
    })
  })

  it('a gateway that cannot read blocks stays ready', async () => {
    const unreadable = { count: 2, reason: 'unknown_receipts' } as const
    const readiness = createReadiness({ ...WELL, unreadableBlocks: () => unreadable }, Date.now)
    expect(await readiness.read()).toMatchObject({ failing: [], unreadableBlocks: unreadable })
  })

  it('the readiness check judges the document that the enclave gives', async () => {
    const seen: string[] = []
    await failingOf({ attestation: async (document) => void seen.push(document) })
    expect(seen).toEqual(['document'])
  })
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
