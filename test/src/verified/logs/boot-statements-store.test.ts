import { expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createBootStatementsStore } from '#src/verified/logs/boot-statements-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import {
  CREATED_AT,
  makeLog,
  OPENING,
  openLog,
  randomAddress,
  storeCommits,
} from '../commits/build-commit.ts'

const database = await useDatabase()
const store = createBootStatementsStore(database)

it('the store of boot statements keeps the first statement of a notary, and no other', async () => {
  const notary = randomAddress()
  expect(await store.find(notary)).toBeNull()
  const first = { notary, heads: '[]', document: Uint8Array.of(1, 2), createdAt: CREATED_AT }
  await store.keep(first)
  await store.keep({ ...first, heads: '[1]', document: Uint8Array.of(3) })
  const found = await store.find(notary)
  expect(found && { ...found, document: new Uint8Array(found.document) }).toMatchObject(first)
})

it('the newest head of each log of a chain and contract that has one is given, newest logs first', async () => {
  const commits = createCommitsStore(database)
  const [one, two, empty] = [makeLog(), makeLog(), makeLog()]
  const stored = [
    await storeCommits(commits, one, [[{}, {}], [{}]]),
    await storeCommits(commits, two, [[{}]]),
  ]
  await openLog(commits, empty)
  const expected = stored.map(({ stored: of }, at) => {
    const head = of.at(-1)?.head
    return {
      notary: at === 0 ? one.notary : two.notary,
      size: head?.size,
      root: encodeHex(head?.root ?? new Uint8Array()),
      signature: `0x${encodeHex(head?.signature ?? new Uint8Array())}`,
    }
  })
  expect(await store.listNewestHeads(OPENING.domain, 10)).toEqual(expected.toReversed())
  expect(await store.listNewestHeads(OPENING.domain, 1)).toEqual(expected.slice(1))
  expect(await store.listNewestHeads({ ...OPENING.domain, chainId: 1 }, 10)).toEqual([])
})
