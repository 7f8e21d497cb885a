import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Decoder } from 'cbor-x'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import { measureSource } from '#src/local/nsm/measured-source.ts'
import { folderOfFile } from '../../../support/folders.ts'
import { openSoftwareNsm } from '../../../support/software-nsm.ts'

const aws = new Uint8Array(
  readFileSync(new URL('../../../vectors/nsm/aws-2026-08-03.bin', import.meta.url)),
)
const PROJECT = resolve(import.meta.dirname, '../../../..')
const NOW_MS = Date.parse('2026-11-21T08:00:00.123Z')
const INPUT = { publicKey: new Uint8Array(65).fill(4), userData: new Uint8Array(), nonce: null }

type Payload = Map<string, unknown>
const decoder = new Decoder({ mapsAsObjects: false, useRecords: false })
function decodeDocument(document: Uint8Array) {
  const [header, unprotected, payload, signature] = decoder.decode(document) as [
    Uint8Array,
    unknown,
    Uint8Array,
    Uint8Array,
  ]
  return { header, unprotected, payload, signature, members: decoder.decode(payload) as Payload }
}

const folder = folderOfFile()
let nsm: Nsm
const now = NOW_MS
beforeAll(async () => {
  nsm = await openSoftwareNsm({ rootFile: join(folder, 'root.pem'), now: () => now })
})

describe('a document of the software module', () => {
  it('a document of the software module has the members of a real one, in the same order and of the same types', async () => {
    const shape = (members: Payload) =>
      [...members].map(([key, value]) => [
        key,
        value instanceof Map ? [...value.keys()] : (value?.constructor.name ?? null),
      ])
    const ours = decodeDocument(await nsm.attest({ publicKey: null, userData: null, nonce: null }))
    expect(shape(ours.members)).toEqual(shape(decodeDocument(aws).members))
  })

  it('a document of the software module holds the measurements of this source, not those of debug mode', async () => {
    const runtime = [`node ${process.version}`, `platform ${process.platform}-${process.arch}`]
    const measured = await measureSource({ root: PROJECT, runtime })
    const pcrs = decodeDocument(await nsm.attest(INPUT)).members.get('pcrs') as Map<
      number,
      Uint8Array
    >
    expect([0, 1, 2].map((index) => Buffer.from(pcrs.get(index) ?? []).toString('hex'))).toEqual(
      [measured.pcr0, measured.pcr1, measured.pcr2].map((value) =>
        Buffer.from(value).toString('hex'),
      ),
    )
    expect([...pcrs.keys()]).toEqual(Array.from({ length: 16 }, (_, index) => index))
  })
})

describe('openSoftwareNsm', () => {
  it('openSoftwareNsm keeps its root over a restart and boots a new instance', async () => {
    const options = { rootFile: join(folder, 'root.pem'), now: () => NOW_MS }
    const again = await openSoftwareNsm(options)
    const [before, after] = [
      decodeDocument(await nsm.attest(INPUT)),
      decodeDocument(await again.attest(INPUT)),
    ]
    const root = ({ members }: { members: Payload }) => (members.get('cabundle') as Uint8Array[])[0]
    expect(root(after)).toEqual(root(before))
    expect(after.members.get('module_id')).not.toBe(before.members.get('module_id'))
  })
})
