import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { openServiceKey } from '#src/storage/service-keys.ts'
import { useDatabase } from '../../support/databases.ts'

const database = await useDatabase()

it('a key of the service is made once, however many gateways ask for it at once', async () => {
  const open = (name: string) => openServiceKey(database, { name, random: randomBytes })
  const keys = await Promise.all(Array.from({ length: 8 }, () => open('bus')))
  expect(new Set(keys.map((key) => Buffer.from(key).toString('hex'))).size).toBe(1)
  expect(keys[0]).toHaveLength(32)
  expect(Buffer.from(await open('other')).equals(Buffer.from(keys[0] ?? []))).toBe(false)
})
