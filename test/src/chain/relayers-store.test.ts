import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createAnchorLag, createRelayersStore } from '#src/chain/relayers-store.ts'
import type { Database } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { type DatabaseSource, startDatabases } from '../../support/databases.ts'
import { CREATED_AT, makeLog, OPENING, storeCommits } from '../verified/commits/build-commit.ts'

describe('anchor lag', () => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases()
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  it('the anchor lag counts the unconfirmed anchors of all relayers of this chain, and knows the oldest', async () => {
    const log = makeLog()
    const relayers = createRelayersStore(database)
    const read = createAnchorLag(relayers, OPENING.domain.chainId)
    expect(await read()).toEqual({ unconfirmed: 0, oldestAt: null })
    const commits = createCommitsStore(database)
    await storeCommits(commits, log, [[{}], [{}], [{}]])
    await storeCommits(commits, makeLog(), [[{}]])
    expect(await read()).toEqual({ unconfirmed: 4, oldestAt: CREATED_AT })
    expect(await createAnchorLag(relayers, 1)()).toEqual({ unconfirmed: 0, oldestAt: null })

    const anchors = createAnchorsStore(database)
    const blockHash = `0x${'1'.repeat(64)}`
    const mined = [0, 1].map((nonce) => ({
      nonce,
      blockNumber: 9,
      blockHash,
      succeeded: true,
      gasUsed: 1,
    }))
    await anchors.markMined(log.relayer, mined)
    expect((await read()).unconfirmed).toBe(4)
    await anchors.markConfirmed(log.relayer, 0)
    expect((await read()).unconfirmed).toBe(3)
  })
})
