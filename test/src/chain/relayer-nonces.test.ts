import fc from 'fast-check'
import { expect, it } from 'vitest'
import { NONCES_SKIPPED_MAX, NonceUnknown, RelayerNonces } from '#src/chain/relayer-nonces.ts'
import { CommitRaceLost } from '#src/chain/relayers-store.ts'

const ADDRESS = `0x${'01'.repeat(20)}`

/** A database that counts the nonces that commits took. */
function startDatabase(
  next: number | null,
  countTransactions: () => Promise<number> = async () => 40,
) {
  const database = { next, reads: 0 }
  const commits = {
    nextNonce: async () => {
      database.reads += 1
      return database.next
    },
    raiseNonce: async (_: string, least: number) => {
      database.next = Math.max(database.next ?? 0, least)
      return database.next
    },
  }
  const relayer = { address: ADDRESS, countTransactions }
  const nonces = new RelayerNonces({ commits, relayer })
  const commit = () =>
    nonces.use(async (nonce) => {
      database.next = nonce + 1
      return nonce
    })
  return { database, nonces, commit }
}

it('RelayerNonces reads the database once while commits succeed, and again after a failed commit', async () => {
  const { database, nonces, commit } = startDatabase(70)
  expect([await commit(), await commit(), database.reads]).toEqual([70, 71, 1])
  await expect(nonces.use(() => Promise.reject(new Error('unknown outcome')))).rejects.toThrow(
    'outcome',
  )
  // Another gateway took one meanwhile.
  database.next = 90
  expect([await commit(), database.reads]).toEqual([90, 2])
})

it('RelayerNonces makes a commit again whose nonce another gateway took, and no commit that lost otherwise', async () => {
  const { database, nonces } = startDatabase(70)
  let races = 0
  nonces.onRace = () => races++
  const tried: number[] = []
  const commit = () =>
    nonces.use(async (nonce) => {
      tried.push(nonce)
      if (nonce !== database.next) throw new CommitRaceLost('the nonce was taken')
      database.next = nonce + 1
      return nonce
    })
  await commit()
  database.next = 75
  expect([await commit(), tried, races]).toEqual([75, [70, 71, 75], 1])
  database.next = 80
  nonces.recordTaken({ relayer: ADDRESS, nextNonce: 80 })
  nonces.recordTaken({ relayer: `0x${'02'.repeat(20)}`, nextNonce: 90 })
  expect([await commit(), tried.length, races]).toEqual([80, 4, 1])
  const lost = new CommitRaceLost('the log was moved')
  await expect(nonces.use(() => Promise.reject(lost))).rejects.toBe(lost)
  expect(races).toBe(1)
})

it('RelayerNonces asks the chain before it gives out the first nonce, and skips what the database lost', async () => {
  expect(await startDatabase(60).nonces.use(async (nonce) => nonce)).toBe(60)
  const { database, nonces } = startDatabase(7)
  expect([await nonces.use(async (nonce) => nonce), database.next]).toEqual([40, 40])
})

it('RelayerNonces believes no count that is far beyond the database, and asks again', async () => {
  let count = 8 + NONCES_SKIPPED_MAX
  const { database, nonces } = startDatabase(7, async () => count)
  await expect(nonces.refresh()).rejects.toThrow(
    /at most 1000000 transactions .* which has 7; it says 1000008/,
  )
  await expect(nonces.use(async () => expect.unreachable())).rejects.toThrow(NonceUnknown)
  count = 9
  expect([await nonces.use(async (nonce) => nonce), database.next]).toEqual([9, 9])
})

it('RelayerNonces gives out nonces while the chain is away later, but not when the database has fewer than before', async () => {
  let isAway = false
  const { database, nonces, commit } = startDatabase(50, async () =>
    isAway ? Promise.reject(new Error('away')) : 40,
  )
  expect(await commit()).toBe(50)
  isAway = true
  nonces.doubt()
  await nonces.refresh()
  expect(await commit()).toBe(51)
  database.next = 51
  await expect(nonces.refresh()).rejects.toThrow(NonceUnknown)
  isAway = false
  expect(await commit()).toBe(51)
})

it('RelayerNonces goes by what the chain shows meanwhile, and asks it again after a failure', async () => {
  let count = 40
  const { nonces, commit } = startDatabase(40, async () => count)
  expect(await commit()).toBe(40)
  nonces.recordCount(41)
  expect(await commit()).toBe(41)
  nonces.recordCount(45)
  count = 47
  expect(await commit()).toBe(47)
  count = 60
  nonces.doubt()
  await nonces.refresh()
  expect(await commit()).toBe(60)
})

it('RelayerNonces gives each of many commits its own nonce, without a gap, whatever fails', async () => {
  const fates = fc.array(fc.constantFrom('done', 'failed', 'done but reported failed'), {
    maxLength: 30,
  })
  await fc.assert(
    fc.asyncProperty(fates, async (given) => {
      const { database, nonces } = startDatabase(0, async () => 0)
      const taken: number[] = []
      let running = 0
      const commits = given.map((fate) =>
        nonces.use(async (nonce) => {
          running += 1
          expect([running, nonce]).toEqual([1, database.next])
          await Promise.resolve()
          if (fate !== 'failed') {
            taken.push(nonce)
            database.next = nonce + 1
          }
          running -= 1
          if (fate !== 'done') throw new Error(fate)
        }),
      )
      await Promise.allSettled(commits)
      expect(taken).toEqual(taken.map((_, index) => index))
    }),
  )
})
