import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRelayerNonces } from '../../../src/services/relayer-nonces.ts'

const relayer = { address: `0x${'01'.repeat(20)}`, firstNonce: async () => 40 }

/** A database that counts the nonces that commits took. */
function startDatabase(next: number | null) {
  const database = { next, reads: 0 }
  const commits = {
    nextNonce: async () => {
      database.reads += 1
      return database.next
    },
    openRelayer: async (_: string, first: number) => {
      database.next ??= first
    },
  }
  return { database, nonces: createRelayerNonces({ commits, relayer }) }
}

describe('createRelayerNonces', () => {
  it('begins where the database is, or where the chain is when the database knows no relayer', async () => {
    expect(await startDatabase(7).nonces.use(async (nonce) => nonce)).toBe(7)
    expect(await startDatabase(null).nonces.use(async (nonce) => nonce)).toBe(40)
  })

  it('reads the database once while commits succeed, and anew after one that failed', async () => {
    const { database, nonces } = startDatabase(7)
    const commit = () =>
      nonces.use(async (nonce) => {
        database.next = nonce + 1
        return nonce
      })
    expect([await commit(), await commit(), database.reads]).toEqual([7, 8, 1])
    await expect(nonces.use(() => Promise.reject(new Error('unknown outcome')))).rejects.toThrow('outcome')
    // Another gateway took one meanwhile.
    database.next = 20
    expect([await commit(), database.reads]).toEqual([20, 2])
  })

  it('gives each commit a nonce of its own, without a gap, whatever fails and however many ask at once', async () => {
    const fates = fc.array(fc.constantFrom('done', 'failed', 'done but reported failed'), { maxLength: 30 })
    await fc.assert(
      fc.asyncProperty(fates, async (given) => {
        const { database, nonces } = startDatabase(0)
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
})
