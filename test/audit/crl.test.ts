import { createPrivateKey, createPublicKey } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeBase64 } from '#attestation/bytes.ts'
import { type Certificate, parseCertificate } from '#attestation/nitro/certificate.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { type BuiltLog, buildLog, createTestNotary } from '../support/audited-log.ts'
import { TEST_KEY } from '../support/equivocating-server.ts'
import { generateKey, type KeyPair, nameOf } from '../support/nitro-builder/certificate-builder.ts'
import { entry, type ListParts, listBy } from '../support/nitro-builder/crl-builder.ts'
import { openSoftwareNsm } from '../support/software-nsm.ts'
import { openStage, type Stage } from './stage.ts'

const DAY_MS = 86_400_000

let stage: Stage
let log: BuiltLog
let trust: readonly string[]
let rootKey: KeyPair
let root: Certificate
let regional: Certificate

beforeAll(async () => {
  stage = await openStage()
  const rootFile = join(stage.folder, 'root.pem')
  const nsm = await openSoftwareNsm({ rootFile, now: Date.now })
  const options = { batches: [3], attestedSizes: [3], anchoring: { chain: null, nonce: 0 } }
  log = await buildLog({ ...(await createTestNotary()), nsm }, options)
  trust = await stage.trust(log)
  const privateKey = createPrivateKey(await readFile(rootFile))
  rootKey = { privateKey, publicKey: createPublicKey(privateKey) }
  const { cabundle } = decodeAttestationPayload(decodeBase64(log.document))
  root = parseCertificate(cabundle[0] ?? new Uint8Array(), 'root')
  regional = parseCertificate(cabundle[1] ?? new Uint8Array(), 'regional')
})
afterAll(() => stage.close())

/** A file of a list by the root of the log's documents. */
async function saveList(
  changed: Partial<ListParts> = {},
  key = rootKey,
): Promise<readonly string[]> {
  const path = join(stage.folder, `${Math.random()}.crl`)
  const inForce = {
    thisUpdate: new Date(Date.now() - DAY_MS),
    nextUpdate: new Date(Date.now() + DAY_MS),
  }
  await writeFile(path, listBy({ name: root.subject.encoding, key }, { ...inForce, ...changed }))
  return ['--crl', path]
}

const serialOf = ({ serial }: Certificate) => BigInt(`0x${Buffer.from(serial).toString('hex')}`)

async function audit(...words: readonly string[]) {
  stage.server.serve([log])
  return stage.audit(...trust, '--key', TEST_KEY, ...words)
}

describe('affidavit audit --crl', () => {
  it('an audit with --crl finds nothing when no certificate is in a list of an issuer of the documents', async () => {
    expect(await audit(...(await saveList({ revoked: [entry(17)] })))).toMatchObject({
      code: 0,
      codes: [],
    })
  })

  it('an audit with --crl catches every document of a certificate that was revoked', async () => {
    const { code, codes, findings } = await audit(
      ...(await saveList({ revoked: [entry(serialOf(regional))] })),
    )
    expect([code, codes]).toEqual([1, ['attestation_invalid']])
    // Boot statement, head attestation, records.
    expect(new Set(findings.map(({ where }) => where.replace(/ \d+$/, ''))).size).toBe(3)
    expect(findings.every(({ message }) => message.includes('certificate_revoked'))).toBe(true)
  })

  it.each<[string, () => Promise<readonly string[]>, string]>([
    ['of another issuer', () => saveList({ issuer: nameOf('other') }), 'an issuer in the document'],
    ['that another key signed', () => saveList({}, generateKey()), 'a signature by'],
    [
      'that ended before the documents were made',
      () => saveList({ nextUpdate: new Date(Date.now() - 3_600_000) }),
      'in force when documents were made',
    ],
  ])(
    'an audit tells of a list %s, which says nothing about any document',
    async (_, save, message) => {
      const { code, codes, findings } = await audit(...(await save()))
      expect([code, codes]).toEqual([1, ['revocation_list_unused']])
      expect(findings[0]?.message).toContain(message)
    },
  )

  it('an audit asks the gateway for nothing when the file of --crl is not a list', async () => {
    const path = join(stage.folder, 'none.crl')
    await writeFile(path, 'no list')
    const { code, stderr } = await audit('--crl', path)
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('expected a revocation list in DER or PEM'),
    ])
    expect(stage.server.asked).toEqual([])
  })
})
