import { expect, it } from 'vitest'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { createAnchorLag, createRelayersStore } from '#src/chain/relayers-store.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { useDatabase } from '../../support/databases.ts'
import {
  CREATED_AT,
  makeLog,
  minedAt,
  OPENING,
  storeCommits,
} from '../verified/commits/build-commit.ts'

const database = await useDatabase()

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
  await anchors.markMined(log.relayer, [minedAt(0, 9), minedAt(1, 9)])
  expect((await read()).unconfirmed).toBe(4)
  await anchors.markConfirmed(log.relayer, 0)
  expect((await read()).unconfirmed).toBe(3)
})
