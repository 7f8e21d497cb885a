import { createHash } from 'node:crypto'
import { expect, it } from 'vitest'
import {
  type Claim,
  type Claimed,
  createIdempotency,
  isWithoutResult,
  RETENTION_SECONDS,
  SETTLE_SECONDS,
  underClaim,
} from '#src/accounts/idempotency.ts'
import {
  type CallName,
  createIdempotencyStore,
  type IdempotencyStore,
} from '#src/accounts/idempotency-store.ts'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { ApiError, CallerLeftError } from '#src/api/errors.ts'
import { faultErrorOf } from '#src/enclaves/enclave-errors.ts'
import { createLogger } from '#src/observability/logger.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { createErasuresStore } from '#src/verified/records/erasures-store.ts'
import type { StoredRecord } from '#src/verified/records/records-store.ts'
import { useDatabase } from '../../support/databases.ts'
import { until } from '../../support/until.ts'

const LEASE_SECONDS = 15
const START = 1_795_219_200
const NOTARY = `0x${'a1'.repeat(20)}`
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const hashOf = (text: string) => new Uint8Array(createHash('sha256').update(text).digest())

function openClaim(claimed: Claimed): Claim {
  if (claimed.kind !== 'claimed') throw new Error(`expected a claim, got ${claimed.kind}`)
  return claimed
}

const database = await useDatabase()

/**
 * Gateways on one database, with one clock; `records` are what is committed, `sealed` what will
 * be with the next look.
 */
function setUp() {
  const clock = { at: START }
  const store = createIdempotencyStore(database, () => clock.at)
  const processes = createProcessesStore(database, () => clock.at)
  const records = new Map<string, StoredRecord>()
  const sealed = new Map<string, StoredRecord>()
  const accountId = crypto.randomUUID()
  const enclave = { notary: NOTARY }

  async function openGateway(over: Partial<IdempotencyStore> = {}) {
    let id = crypto.randomUUID()
    const lost: (() => void)[] = []
    const replaced: (() => void)[] = []
    const lease = {
      id: () => id,
      isHeld: () => true,
      onLost: (listener: () => void) => void lost.push(listener),
      onReplaced: (listener: () => void) => void replaced.push(listener),
    }
    await processes.enter(id, LEASE_SECONDS)
    const service = createIdempotency({
      store: { ...store, ...over },
      findRecord: async (callId) => records.get(callId) ?? null,
      lease,
      notary: async () => enclave.notary,
      settleLog: async () => {
        for (const [callId, record] of sealed) records.set(callId, record)
      },
      now: () => clock.at * 1000,
      log,
    })
    const abort = new AbortController()
    const claim = (body = 'body', isVerified = true, key = 'k', account: string = accountId) =>
      service.claim({ accountId: account, key, requestHash: hashOf(body), isVerified, abort })
    const lose = () => {
      for (const listener of lost) listener()
    }
    /** The process gets a new id, as after a lost lease. */
    const replace = async () => {
      id = crypto.randomUUID()
      await processes.enter(id, LEASE_SECONDS)
      for (const listener of replaced) listener()
    }
    return { claim, abort, lose, replace }
  }

  const recordOf = (outcome: StoredRecord['outcome'] = 'complete') => ({ outcome }) as StoredRecord
  return { clock, store, records, sealed, enclave, openGateway, recordOf }
}

const outcomeOf = (claimed: Promise<Claimed>) =>
  claimed.then(
    (value) => value.kind,
    (error) => (error instanceof ApiError ? error.code : error),
  )

it('a call with an idempotency key gives its answer to nobody before the answer is stored', async () => {
  const { openGateway, store } = setUp()
  const gate = Promise.withResolvers<void>()
  const { claim } = await openGateway({
    async keep(call, answer) {
      await gate.promise
      await store.keep(call, answer)
    },
  })
  const { claim: claimElsewhere } = await openGateway()
  const answer = '{"é":"\\u0000"}'
  let isAnswered = false
  const first = underClaim(openClaim(await claim('body', false)), async () => answer).finally(
    () => {
      isAnswered = true
    },
  )
  for (const each of [claim, claimElsewhere])
    expect(await outcomeOf(each('body', false))).toBe('idempotency_in_progress')
  expect(isAnswered).toBe(false)
  gate.resolve()
  expect(await first).toBe(answer)
  for (const each of [claim, claimElsewhere])
    expect(await each('body', false)).toEqual({ kind: 'answer', answer })
})

it('a call with an idempotency key frees it before its caller learns of the fault', async () => {
  const { openGateway, store } = setUp()
  const gate = Promise.withResolvers<void>()
  const { claim } = await openGateway({
    async release(call) {
      await gate.promise
      await store.release(call)
    },
  })
  const fault = new ApiError('provider_error', 'no')
  let isAnswered = false
  const failed = underClaim(openClaim(await claim()), () => Promise.reject(fault)).catch(
    (error: unknown) => {
      isAnswered = true
      return error
    },
  )
  expect(await outcomeOf(claim())).toBe('idempotency_in_progress')
  expect(isAnswered).toBe(false)
  gate.resolve()
  expect(await failed).toBe(fault)
  expect(await outcomeOf(claim())).toBe('claimed')
})

it('one of many callers at two gateways gets to make the call of an idempotency key', async () => {
  const { openGateway } = setUp()
  const gateways = [await openGateway(), await openGateway()]
  const outcomes = await Promise.all(
    Array.from({ length: 64 }, (_, caller) =>
      outcomeOf(gateways[caller % 2]?.claim() ?? expect.unreachable()),
    ),
  )
  expect(outcomes.filter((outcome) => outcome === 'claimed')).toHaveLength(1)
  expect(outcomes.filter((outcome) => outcome === 'idempotency_in_progress')).toHaveLength(63)
})

it('one of many callers gets to make the second try of a plain call', async () => {
  const { openGateway, clock } = setUp()
  await (await openGateway()).claim('body', false)
  clock.at += LEASE_SECONDS
  const other = await openGateway()
  const outcomes = await Promise.all(
    Array.from({ length: 32 }, () => outcomeOf(other.claim('body', false))),
  )
  expect(outcomes.filter((outcome) => outcome === 'claimed')).toHaveLength(1)
})

it('an idempotency key refuses another request, whatever became of the first', async () => {
  const { openGateway, records, recordOf } = setUp()
  const { claim } = await openGateway()
  const { callId } = openClaim(await claim())
  expect(await outcomeOf(claim('other'))).toBe('idempotency_key_reused')
  records.set(callId, recordOf())
  expect(await outcomeOf(claim('other'))).toBe('idempotency_key_reused')
})

it('idempotency keys of two accounts, and two keys of one account, are kept apart', async () => {
  const one = await setUp().openGateway()
  const other = await setUp().openGateway()
  expect(await outcomeOf(one.claim('a'))).toBe('claimed')
  expect(await outcomeOf(other.claim('b'))).toBe('claimed')
  expect(await outcomeOf(one.claim('b', true, 'another'))).toBe('claimed')
})

it.each([
  { code: 'credential_mismatch', status: 422, message: 'another credential' },
  { code: 'invalid_request', status: 413, message: 'too long' },
] as const)(
  'a call that the enclave refused frees its idempotency key and uses no tokens: $status $code',
  async (fault) => {
    const { claim } = await setUp().openGateway()
    const error = faultErrorOf(fault, false)
    expect(isWithoutResult(error)).toBe(true)
    await openClaim(await claim()).fail(error)
    expect(await outcomeOf(claim())).toBe('claimed')
  },
)

it('a call that the provider may have made does not free its idempotency key', async () => {
  const { openGateway, clock } = setUp()
  const { claim } = await openGateway()
  await openClaim(await claim()).fail(
    new ApiError('provider_timeout', 'too long', { mayBeMade: true }),
  )
  expect(await outcomeOf(claim())).toBe('idempotency_in_progress')
  clock.at += SETTLE_SECONDS
  expect(await outcomeOf(claim())).toBe('idempotency_outcome_unknown')
})

it('a call that was given up gives its record when it was sealed all the same', async () => {
  const { openGateway, clock, sealed, recordOf } = setUp()
  const { claim } = await openGateway()
  const { callId, fail } = openClaim(await claim())
  await fail(new ApiError('commit_delayed', 'later'))
  sealed.set(callId, recordOf())
  clock.at += SETTLE_SECONDS
  expect(await outcomeOf(claim())).toBe('record')
})

it('a record that was broken off is neither given nor made anew', async () => {
  const { openGateway, clock, sealed, recordOf } = setUp()
  const { claim } = await openGateway()
  const { callId, fail } = openClaim(await claim())
  await fail(new CallerLeftError())
  sealed.set(callId, recordOf('client_disconnected'))
  clock.at += SETTLE_SECONDS
  expect(await outcomeOf(claim())).toBe('idempotency_outcome_unknown')
})

it('a call waits for the lease of a dead gateway, and then gives its record or says that it is not known', async () => {
  for (const isSealed of [true, false]) {
    const { openGateway, clock, sealed, recordOf } = setUp()
    const { callId } = openClaim(await (await openGateway()).claim())
    if (isSealed) sealed.set(callId, recordOf())
    clock.at += LEASE_SECONDS - 1
    const other = await openGateway()
    expect(await outcomeOf(other.claim())).toBe('idempotency_in_progress')
    clock.at += 1
    expect(await outcomeOf(other.claim())).toBe(isSealed ? 'record' : 'idempotency_outcome_unknown')
  }
})

it('a verified call that runs through a lost lease is in progress at each gateway, and then gives its record', async () => {
  const { openGateway, store, clock, records, recordOf } = setUp()
  let isAway = true
  let isAdopted = false
  const one = await openGateway({
    async adopt(calls, processId) {
      if (isAway) throw new Error('connection refused')
      await store.adopt(calls, processId)
      isAdopted = true
    },
  })
  const { callId, succeed } = openClaim(await one.claim())
  const given = openClaim(await one.claim('body', true, 'given up'))
  await given.fail(new CallerLeftError())
  clock.at += LEASE_SECONDS
  const other = await openGateway()
  await one.replace()
  expect(await outcomeOf(one.claim())).toBe('idempotency_in_progress')
  isAway = false
  await until('the call has the new id', async () => {
    expect(await outcomeOf(one.claim())).toBe('idempotency_in_progress')
    return isAdopted
  })
  expect(await outcomeOf(other.claim())).toBe('idempotency_in_progress')
  expect(await outcomeOf(other.claim('body', true, 'given up'))).toBe('idempotency_outcome_unknown')
  records.set(callId, recordOf())
  await succeed(null)
  expect(await outcomeOf(other.claim())).toBe('record')
})

it('a second call is never made while the first may be in the log of an enclave that is out of sight', async () => {
  const { openGateway, clock, enclave, records, recordOf } = setUp()
  const { callId } = openClaim(await (await openGateway()).claim())
  clock.at += LEASE_SECONDS
  enclave.notary = `0x${'b2'.repeat(20)}`
  const other = await openGateway()
  expect(await outcomeOf(other.claim())).toBe('idempotency_outcome_unknown')
  clock.at += 12 * 3_600
  expect(await outcomeOf(other.claim())).toBe('idempotency_outcome_unknown')
  records.set(callId, recordOf())
  expect(await outcomeOf(other.claim())).toBe('record')
})

it('a second try that begins after an erasure keeps its answer, and one that began before does not', async () => {
  const { openGateway, clock } = setUp()
  const accountName = `account ${crypto.randomUUID()}`
  const { id } = await createKeysStore(database).openAccount({
    id: crypto.randomUUID(),
    name: accountName,
    createdAt: clock.at,
  })
  const erase = () =>
    createErasuresStore(database, () => clock.at).eraseAccount(accountName, {
      by: 'operator',
      reason: 'asked for',
    })
  const takeUp = async (answer: string, during = async () => {}) => {
    const { claim } = await openGateway()
    const { succeed } = openClaim(await claim('body', false, 'k', id))
    clock.at += 1
    await during()
    await succeed(answer)
    clock.at += LEASE_SECONDS
  }
  await (await openGateway()).claim('body', false, 'k', id)
  clock.at += LEASE_SECONDS
  await takeUp('"first"', async () => void (await erase()))
  await takeUp('"second"')
  const { claim } = await openGateway()
  expect(await claim('body', false, 'k', id)).toEqual({ kind: 'answer', answer: '"second"' })
})

it('a plain call whose account was erased while it ran can be made again at another gateway', async () => {
  const { openGateway, clock } = setUp()
  const name = `account ${crypto.randomUUID()}`
  const account = { id: crypto.randomUUID(), name, createdAt: clock.at }
  const { id } = await createKeysStore(database).openAccount(account)
  const [one, other] = [await openGateway(), await openGateway()]
  const { succeed } = openClaim(await one.claim('body', false, 'k', id))
  clock.at += 1
  const erasures = createErasuresStore(database, () => clock.at)
  await erasures.eraseAccount(name, { by: 'operator', reason: 'asked for' })
  await succeed('"erased"')
  clock.at += 1
  const again = openClaim(await other.claim('body', false, 'k', id))
  await again.succeed('"second"')
  expect(await one.claim('body', false, 'k', id)).toEqual({ kind: 'answer', answer: '"second"' })
})

it('an idempotency key is forgotten after its time', async () => {
  const { openGateway, records, recordOf, clock, store } = setUp()
  const { claim } = await openGateway()
  const { callId } = openClaim(await claim())
  records.set(callId, recordOf())
  clock.at += RETENTION_SECONDS - 1
  expect(await outcomeOf(claim())).toBe('record')
  clock.at += 1
  expect(await outcomeOf(claim('another body'))).toBe('claimed')
  clock.at += RETENTION_SECONDS
  await store.purge()
  expect(await store.purge()).toBe(0)
})

it('an idempotency key that could not be freed at once, of a call that made nothing, is freed later', async () => {
  const { openGateway, store } = setUp()
  let isAway = true
  const { claim } = await openGateway({
    release: (call) =>
      isAway ? Promise.reject(new Error('connection refused')) : store.release(call),
  })
  await openClaim(await claim()).fail(new ApiError('provider_error', 'no'))
  expect(await outcomeOf(claim())).toBe('idempotency_in_progress')
  isAway = false
  await until('the key is free', async () => (await outcomeOf(claim())) === 'claimed')
})

it.each([
  ['the answer of a call', 'keep', 'answer', (claim: Claim) => claim.succeed('"kept"')],
  [
    'that a call was given up',
    'abandon',
    'idempotency_outcome_unknown',
    (claim: Claim) => claim.fail(new CallerLeftError()),
  ],
  [
    'that the key of a call is free',
    'release',
    'claimed',
    (claim: Claim) => claim.fail(new ApiError('provider_error', 'no')),
  ],
] as const)(
  "another gateway learns %s, though that could not be stored at the call's end and no claim follows",
  async (_, method, outcome, end) => {
    const { openGateway, store, clock } = setUp()
    let tries = 0
    let isStored = false
    const failing = {
      [method]: async (call: CallName, answer: string) => {
        if (++tries <= 2) throw new Error('connection refused')
        await store[method](call, answer)
        isStored = true
      },
    }
    const [one, other] = [await openGateway(failing), await openGateway()]
    const isVerified = method === 'abandon'
    await end(openClaim(await one.claim('body', isVerified)))
    expect(await outcomeOf(other.claim('body', isVerified))).toBe('idempotency_in_progress')
    await until('the end is stored', () => isStored)
    clock.at += SETTLE_SECONDS
    expect(await outcomeOf(other.claim('body', isVerified))).toBe(outcome)
  },
)

it('a call is given up when its answer could not be stored and there is no room to remember it', async () => {
  const { openGateway, store } = setUp()
  const stored: string[] = []
  const { claim } = await openGateway({
    keep: () => Promise.reject(new Error('connection refused')),
    abandon: async (call) => {
      await store.abandon(call)
      stored.push(call.callId)
    },
  })
  const { callId, succeed } = openClaim(await claim('body', false))
  await succeed('x'.repeat(8 * 1024 * 1024 + 1))
  await until('the call is given up', () => stored.includes(callId))
  expect(await outcomeOf((await openGateway()).claim('body', false))).toBe('claimed')
})

it('a call is given up when the database refuses its answer, so that another gateway makes it', async () => {
  const { openGateway, store } = setUp()
  let tries = 0
  const { claim } = await openGateway({
    keep: (call, answer) => {
      tries++
      return store.keep(call, answer)
    },
  })
  await openClaim(await claim('body', false)).succeed('x\0')
  expect(await outcomeOf((await openGateway()).claim('body', false))).toBe('claimed')
  await claim('body', false, 'another')
  expect(tries).toBe(1)
})

it('an idempotency key is freed when its claim was stored and the answer to the claim was lost', async () => {
  const { openGateway, store } = setUp()
  let isCut = true
  const { claim } = await openGateway({
    async claim(call, seconds) {
      const outcome = await store.claim(call, seconds)
      if (!isCut) return outcome
      throw new Error('connection terminated')
    },
  })
  expect(await outcomeOf(claim())).toBe('not_ready')
  isCut = false
  await until('the key is free', async () => (await outcomeOf(claim())) === 'claimed')
})

it('a gateway ends its plain calls when others may take it for dead', async () => {
  const { openGateway } = setUp()
  const { claim, abort, lose } = await openGateway()
  await claim()
  lose()
  // No other makes it meanwhile.
  expect(abort.signal.aborted).toBe(false)
  await claim('plain', false, 'another')
  expect(abort.signal.aborted).toBe(false)
  lose()
  expect(abort.signal.reason).toMatchObject({ code: 'not_ready' })
})
