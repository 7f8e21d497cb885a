import { verify, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { Decoder, Encoder } from 'cbor-x'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseRoots } from '#attestation/nitro/policy.ts'
import { verifyAttestation } from '#attestation/nitro/verify-attestation.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import { openDevelopmentRoot, rootCertificateFile } from '#src/local/nsm/development-root.ts'
import { measureSource } from '#src/local/nsm/measured-source.ts'
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

let folder: string
let nsm: Nsm
let now = NOW_MS
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-nsm-'))
  nsm = await openSoftwareNsm({ rootFile: join(folder, 'root.pem'), now: () => now })
})
afterAll(() => rm(folder, { recursive: true }))

describe('a document of the software module', () => {
  it('a document of the software module has the envelope of a real one', async () => {
    const [ours, real] = [decodeDocument(await nsm.attest(INPUT)), decodeDocument(aws)]
    expect(ours.header).toEqual(real.header)
    expect(ours.unprotected).toEqual(real.unprotected)
    expect(ours.signature.length).toBe(real.signature.length)
    expect([ours.payload[0], ours.payload.at(-1)]).toEqual([real.payload[0], real.payload.at(-1)])
  })

  it('a document of the software module has the members of a real one, in the same order and of the same types', async () => {
    const shape = (members: Payload) =>
      [...members].map(([key, value]) => [
        key,
        value instanceof Map ? [...value.keys()] : (value?.constructor.name ?? null),
      ])
    const ours = decodeDocument(await nsm.attest({ publicKey: null, userData: null, nonce: null }))
    expect(shape(ours.members)).toEqual(shape(decodeDocument(aws).members))
  })

  it('a document of the software module is signed by its leaf over the exact bytes it carries', async () => {
    const { header, payload, signature, members } = decodeDocument(await nsm.attest(INPUT))
    const toBeSigned = new Encoder().encode([
      'Signature1',
      Buffer.from(header),
      Buffer.alloc(0),
      Buffer.from(payload),
    ])
    const { publicKey } = new X509Certificate(members.get('certificate') as Uint8Array)
    expect(
      verify('sha384', toBeSigned, { key: publicKey, dsaEncoding: 'ieee-p1363' }, signature),
    ).toBe(true)
    toBeSigned.writeUInt8(toBeSigned.readUInt8(100) ^ 1, 100)
    expect(
      verify('sha384', toBeSigned, { key: publicKey, dsaEncoding: 'ieee-p1363' }, signature),
    ).toBe(false)
  })

  it('a document of the software module carries what it was asked to, and tells empty from absent', async () => {
    const { members } = decodeDocument(await nsm.attest(INPUT))
    expect(new Uint8Array(members.get('public_key') as Uint8Array)).toEqual(INPUT.publicKey)
    expect(members.get('user_data')).toHaveLength(0)
    expect(members.get('nonce')).toBeNull()
    expect(members.get('timestamp')).toBe(BigInt(NOW_MS))
    expect(members.get('digest')).toBe('SHA384')
  })

  it("a document of the software module names the module in the leaf and the instance in the leaf's issuer", async () => {
    const { members } = decodeDocument(await nsm.attest(INPUT))
    const moduleId = String(members.get('module_id'))
    expect(moduleId).toMatch(/^i-[0-9a-f]{17}-enc[0-9a-f]{16}$/)
    const leaf = new X509Certificate(members.get('certificate') as Uint8Array)
    expect(leaf.subject).toContain(`CN=${moduleId}.`)
    expect(leaf.issuer).toContain(`CN=${moduleId.split('-enc')[0]}.`)
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

  it('a document of the software module holds the measurements that it is given instead', async () => {
    const [pcr0, pcr1, pcr2] = [1, 2, 3].map((value) => new Uint8Array(48).fill(value)) as [
      Uint8Array,
      Uint8Array,
      Uint8Array,
    ]
    const measurements = { pcr0, pcr1, pcr2 }
    const module = await openSoftwareNsm({ rootFile: null, measurements, now: () => NOW_MS })
    const pcrs = decodeDocument(await module.attest(INPUT)).members.get('pcrs') as Map<
      number,
      Uint8Array
    >
    expect([0, 1, 2].map((index) => new Uint8Array(pcrs.get(index) ?? []))).toEqual([
      pcr0,
      pcr1,
      pcr2,
    ])
  })

  it('a document of the software module is signed by a renewed leaf four hours later', async () => {
    const before = decodeDocument(await nsm.attest(INPUT)).members.get('certificate')
    now = NOW_MS + 4 * 3600_000
    const after = decodeDocument(await nsm.attest(INPUT)).members.get('certificate') as Uint8Array
    now = NOW_MS
    expect(after).not.toEqual(before)
    expect(new X509Certificate(after).validToDate.getTime()).toBeGreaterThan(NOW_MS + 4 * 3600_000)
  })
})

describe('the validator', () => {
  const policy = { measurements: 'any' } as const
  const input = {
    publicKey: new Uint8Array(65).fill(4),
    userData: new Uint8Array(32),
    nonce: new Uint8Array(16),
  }
  const rootsOf = async () =>
    parseRoots(await readFile(rootCertificateFile(join(folder, 'root.pem'))))

  it('the validator accepts a document under the development root, with every binding', async () => {
    const document = await nsm.attest(input)
    const at = new Date(NOW_MS)
    const facts = await verifyAttestation(
      document,
      { ...policy, roots: await rootsOf(), nonce: input.nonce },
      at,
    )
    expect(facts).toMatchObject({
      moduleId: decodeDocument(document).members.get('module_id'),
      timestampMs: NOW_MS,
      isDebugMode: false,
      unknownKeys: [],
      publicKey: input.publicKey,
    })
    const instanceId = facts.moduleId.split('-enc')[0]
    expect(facts.bindings).toEqual({
      instanceId,
      pcr4: true,
      leafCommonName: true,
      issuerCommonName: true,
    })
  })

  it('the validator accepts a document by the measurements of this source, and not by others', async () => {
    const document = await nsm.attest(input)
    const pcrs = decodeDocument(document).members.get('pcrs') as Map<number, Uint8Array>
    const expected = new Map([[2, new Uint8Array(pcrs.get(2) ?? [])]])
    const roots = await rootsOf()
    const at = new Date(NOW_MS)
    await expect(
      verifyAttestation(document, { measurements: [expected], roots }, at),
    ).resolves.toBeDefined()
    const other = new Map([[2, new Uint8Array(48).fill(1)]])
    await expect(
      verifyAttestation(document, { measurements: [other], roots }, at),
    ).rejects.toMatchObject({
      name: 'AttestationError',
    })
  })

  it('the validator refuses a document without that root, and under the root of somebody else', async () => {
    const document = await nsm.attest(input)
    const at = new Date(NOW_MS)
    const stranger = new X509Certificate((await openDevelopmentRoot(null, NOW_MS)).certificate)
    const roots = parseRoots(new Uint8Array(stranger.raw))
    for (const refused of [policy, { ...policy, roots }])
      await expect(verifyAttestation(document, refused, at)).rejects.toMatchObject({
        code: 'root_untrusted',
      })
  })

  it('the validator accepts the documents of three weeks, all certificates renewed along the way', async () => {
    const roots = await rootsOf()
    for (let hours = 0; hours < 21 * 24; hours += 5) {
      now = NOW_MS + hours * 3600_000
      const facts = await verifyAttestation(
        await nsm.attest(input),
        { ...policy, roots },
        new Date(now),
      )
      expect(facts.timestampMs).toBe(now)
    }
    now = NOW_MS
  })

  it('the validator accepts documents with full fields', async () => {
    const full = new Uint8Array(1024).fill(7)
    const document = await nsm.attest({ publicKey: full, userData: full, nonce: full })
    const facts = await verifyAttestation(
      document,
      { ...policy, roots: await rootsOf() },
      new Date(NOW_MS),
    )
    expect(facts.userData).toEqual(full)
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

  it('openSoftwareNsm keeps a root in memory only when told to', async () => {
    const options = { rootFile: null, now: () => NOW_MS }
    const [first, second] = await Promise.all([openSoftwareNsm(options), openSoftwareNsm(options)])
    const root = (document: Uint8Array) =>
      (decodeDocument(document).members.get('cabundle') as Uint8Array[])[0]
    expect(root(await first.attest(INPUT))).not.toEqual(root(await second.attest(INPUT)))
  })

  it('openSoftwareNsm gives randomness, and refuses everything once closed', async () => {
    const short = await openSoftwareNsm({ rootFile: null, now: () => NOW_MS })
    expect(short.kind).toBe('software')
    expect(await short.random(32)).toHaveLength(32)
    expect(await short.random(0)).toHaveLength(0)
    short.close()
    await expect(short.attest(INPUT)).rejects.toMatchObject({ code: 'Closed' })
  })
})
