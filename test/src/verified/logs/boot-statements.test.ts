import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { makeAccount } from '#enclave/notary-key.ts'
import { EnclaveClient } from '#src/enclaves/enclave-client.ts'
import { EnclaveError } from '#src/enclaves/enclave-errors.ts'
import { createBootStatements } from '#src/verified/logs/boot-statements.ts'
import type {
  BootStatementsStore,
  StoredBootStatement,
} from '#src/verified/logs/boot-statements-store.ts'
import {
  DOMAIN,
  startTestEnclave,
  type TestEnclave,
} from '../../../enclave/support/test-enclave.ts'
import { recordLog } from '../../../support/chain.ts'

let enclave: TestEnclave
let client: EnclaveClient
let kept: StoredBootStatement[]
let heads: readonly BootHead[]
let store: BootStatementsStore

async function headOf(): Promise<BootHead> {
  const account = await makeAccount(async (length) => randomBytes(length))
  const head = { size: 3, root: randomBytes(32) }
  const signature = `0x${encodeHex(account.sign(treeHeadDigest(DOMAIN, head)))}`
  return { notary: account.notary, size: head.size, root: encodeHex(head.root), signature }
}

beforeEach(async () => {
  const providers = [
    { name: 'none', origin: 'http://127.0.0.1:1', path: '/chat', models: ['none'] },
  ]
  enclave = await startTestEnclave({ providers })
  const { socketPath } = enclave
  client = new EnclaveClient({ socketPath, callsMax: 1 })
  kept = []
  heads = [await headOf(), await headOf()]
  store = {
    find: async (notary) => kept.find((one) => one.notary === notary) ?? null,
    keep: async (statement) => void kept.push(statement),
    listNewestHeads: async () => heads,
  }
})
afterEach(async () => {
  await client.close()
  await enclave.stop()
})

const open = () => createBootStatements({ store, domain: DOMAIN, log: recordLog().log })

it('createBootStatements shows a new enclave the heads of all logs, once, and stores what it states', async () => {
  const boots = open()
  const identity = await client.identity()
  await boots.register(identity, client)
  await boots.register(identity, { stateBoot: () => Promise.reject(new Error('asked again')) })
  expect(kept).toHaveLength(1)
  const stated = JSON.parse(kept[0]?.heads ?? '[]') as BootHead[]
  expect(stated.map(({ notary }) => notary)).toEqual(heads.map(({ notary }) => notary).toSorted())
})

it('createBootStatements stores the statement that another gateway asked for, and lost', async () => {
  const lost = await client.stateBoot([])
  await open().register(await client.identity(), client)
  expect(kept[0]).toMatchObject({ heads: '[]', document: expect.anything() })
  expect(Buffer.from(kept[0]?.document ?? []).toString('base64')).toBe(lost.document)
})

it('createBootStatements does without an enclave of an earlier build, and asks one again that was not ready', async () => {
  const identity = await client.identity()
  const refuse = (status: number, code: 'invalid_call' | 'not_ready') =>
    new EnclaveError('refused', 'refused', { status, code, message: '' })
  await open().register(identity, {
    stateBoot: () => Promise.reject(refuse(404, 'invalid_call')),
  })
  expect(kept).toEqual([])
  const boots = open()
  const away = { stateBoot: () => Promise.reject(refuse(503, 'not_ready')) }
  await expect(boots.register(identity, away)).rejects.toThrow(EnclaveError)
  await boots.register(identity, client)
  expect(kept).toHaveLength(1)
})

it('createBootStatements refuses a document that is over other heads', async () => {
  const swapping = {
    stateBoot: async (shown: readonly BootHead[]) => ({
      ...(await client.stateBoot(shown)),
      heads: [],
    }),
  }
  await expect(open().register(await client.identity(), swapping)).rejects.toThrow('over the heads')
  expect(kept).toEqual([])
})
