import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Command } from 'commander'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { parseLists, RevocationListError } from '#attestation/revocation/parse-lists.ts'
import { registerAttestation } from '#src/cli/commands/attestation.ts'
import { LISTS_BYTES_MAX, UnusableListError } from '#src/cli/revocation/lists.ts'
import { folderOfFile } from '../../../support/folders.ts'
import {
  authorityConstraints,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  nameOf,
  signWith,
} from '../../../support/nitro-builder/certificate-builder.ts'
import { entry, listAt, listBy } from '../../../support/nitro-builder/crl-builder.ts'
import {
  boolean,
  encodeDer,
  integer,
  objectIdentifier,
  sequence,
} from '../../../support/nitro-builder/der-encoder.ts'
import { buildChain, keyAt, MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import { buildDocument, standardChain } from '../../../support/nitro-builder/document-builder.ts'

const AT = String(MADE_AT.getTime() / 1000)
const WITH_SHA256 = sequence(objectIdentifier('1.2.840.10045.4.3.2'))
const POINT = 'http://lists.test/zonal.crl'
const uri = (text: string) => encodeDer(0x86, Buffer.from(text))
/** DistributionPointName with full names, in its [0]. */
const fullName = (text: string) => encodeDer(0xa0, encodeDer(0xa0, uri(text)))
const issuingPoint = (...members: readonly Uint8Array[]) =>
  extension('2.5.29.28', { critical: true, value: sequence(...members) })
const flag = (tag: number) => {
  const [, ...value] = boolean(true)
  return Uint8Array.of(0x80 | tag, ...value)
}
const pointed = buildChain({
  level: 2,
  parts: {
    extensions: [
      authorityConstraints(1),
      keyUsage(KEY_USAGE_BITS.keyCertSign | KEY_USAGE_BITS.cRLSign),
      extension('2.5.29.31', { critical: false, value: sequence(sequence(fullName(POINT))) }),
    ],
  },
})

const folder = folderOfFile()
let root: string
let document: string
let output = ''
let server: Server
let answer: Uint8Array = new Uint8Array()
let status = 200

beforeAll(async () => {
  root = await save(standardChain.cabundle[0] ?? '')
  document = await save(buildDocument())
  server = createServer((_, response) => {
    response.writeHead(status, { location: '/elsewhere' }).end(answer)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
})
afterAll(() => server.close())
beforeEach(() => {
  status = 200
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    output += String(text)
    return true
  })
})
afterEach(() => {
  vi.restoreAllMocks()
  process.exitCode = undefined
})

async function save(content: Uint8Array | string): Promise<string> {
  const path = join(folder, randomBytes(8).toString('hex'))
  await writeFile(path, content)
  return path
}

const pem = (der: Uint8Array) =>
  `-----BEGIN X509 CRL-----\n${Buffer.from(der)
    .toString('base64')
    .replaceAll(/(.{64})/g, '$1\n')}\n-----END X509 CRL-----\n`

/** Runs the command in this process; rejects with what main would report. */
async function run(file: string, ...words: readonly string[]) {
  output = ''
  const program = new Command('affidavit')
  registerAttestation(program)
  const trust = ['--root', root, '--any-measurement', '--json']
  await program.parseAsync(['attestation', file, ...trust, ...words], { from: 'user' })
  const report = JSON.parse(output) as {
    code: string | null
    valid: boolean
    rules?: readonly { rule: number; outcome: string; detail: string }[]
    facts?: { rules: readonly { rule: number; outcome: string; detail: string }[] }
  }
  return { ...report, exitCode: process.exitCode }
}

const current = async (list: Uint8Array | string, file = document) =>
  run(file, '--at', AT, '--crl', await save(list))

describe('affidavit attestation --crl', () => {
  it('attestation passes when lists in DER and PEM, of several issuers, name none of the certificates', async () => {
    const report = await run(
      document,
      ...['--at', AT],
      ...[
        '--crl',
        await save(pem(listAt(0)) + pem(listAt(1, { revoked: [entry(0x7003), entry(1)] }))),
      ],
      ...['--crl', await save(listAt(0, { revoked: [entry(0x7002)] }))],
    )
    expect([report.valid, report.exitCode]).toEqual([true, 0])
    expect(JSON.stringify(report)).toContain('3 lists of issuers in the chain')
  })

  it('attestation refuses a document with a certificate that the root or an intermediate revoked', async () => {
    for (const [level, serial] of [
      [0, 0x7001],
      [1, 0x7002],
      [2, 0x7003],
    ] as const) {
      const reason = extension('2.5.29.21', { critical: false, value: Uint8Array.of(0x0a, 1, 6) })
      for (const revoked of [[entry(serial)], [entry(1), entry(serial, reason)]])
        expect(await current(listAt(level, { revoked }))).toMatchObject({
          valid: false,
          code: 'certificate_revoked',
          exitCode: 1,
        })
    }
  })

  it('attestation refuses an expired list, and a list that begins later', async () => {
    const nextUpdate = new Date(MADE_AT.getTime() - 1000)
    expect(await current(listAt(1, { nextUpdate }))).toMatchObject({
      code: 'revocation_list_expired',
      exitCode: 1,
    })
    const thisUpdate = new Date(MADE_AT.getTime() + 1000)
    await expect(current(listAt(1, { thisUpdate }))).rejects.toMatchObject({
      code: 'not_yet_valid',
    })
    await expect(
      run(
        document,
        '--historical',
        '--crl',
        await save(listAt(1, { thisUpdate: new Date(Date.now() + 60_000) })),
      ),
    ).rejects.toMatchObject({ code: 'not_yet_valid' })
  })

  it('a list with an address is about the certificates that name this address', async () => {
    const file = await save(buildDocument({ chain: pointed }))
    const revoked = [entry(0x7002)]
    const about = listAt(1, { revoked, extensions: [issuingPoint(fullName(POINT), flag(2))] })
    expect(await current(about, file)).toMatchObject({ code: 'certificate_revoked' })
    const elsewhere = listAt(1, {
      revoked,
      extensions: [issuingPoint(fullName('http://lists.test/other'))],
    })
    await expect(current(elsewhere, file)).rejects.toMatchObject({ code: 'scope' })
  })

  const listWith =
    (...extensions: readonly Uint8Array[]) =>
    () =>
      listAt(1, { extensions })
  const critical = (oid: string, value = integer(1)) => extension(oid, { critical: true, value })
  const someReasons = encodeDer(0x83, Uint8Array.of(1, 6))
  const noSignature = () => encodeDer(0x03, new Uint8Array(9))
  const otherAlgorithm = { innerAlgorithm: WITH_SHA256, outerAlgorithm: WITH_SHA256 }
  const stranger = { name: nameOf('other'), key: generateKey() }
  const oddEntry = entry(1, critical('2.5.29.29', sequence()))
  const noPem = '-----BEGIN X509 CRL-----\n*\n-----END X509 CRL-----'

  it.each<[string, string, () => Uint8Array | string]>([
    ['signature', 'the key of another certificate', () => listAt(1, { sign: signWith(keyAt(2)) })],
    ['signature', 'a signature that is none', () => listAt(1, { sign: noSignature })],
    ['foreign', 'an issuer that is not in the chain', () => listBy(stranger)],
    ['foreign', 'the leaf as its issuer', () => listAt(4)],
    ['key_usage', 'an issuer that may not sign lists', () => listAt(3)],
    ['scope', 'certificates of ends alone', listWith(issuingPoint(flag(1)))],
    ['unsupported', 'certificates of other issuers too', listWith(issuingPoint(flag(4)))],
    ['unsupported', 'attribute certificates', listWith(issuingPoint(flag(5)))],
    ['unsupported', 'some reasons alone', listWith(issuingPoint(someReasons))],
    ['unsupported', 'changes since another list', listWith(critical('2.5.29.27'))],
    ['unsupported', 'an unknown critical extension', listWith(critical('1.2.3.4'))],
    ['unsupported', 'a critical extension of an entry', () => listAt(1, { revoked: [oddEntry] })],
    ['malformed', 'no word of the next list', () => listAt(1, { nextUpdate: null })],
    ['malformed', 'the first version', () => listAt(1, { version: null, extensions: null })],
    ['malformed', 'something after it', () => Buffer.concat([listAt(1), Uint8Array.of(0)])],
    ['malformed', 'a certificate in its place', () => standardChain.cabundle[1] ?? ''],
    ['malformed', 'no list at all', () => 'a list'],
    ['malformed', 'PEM that is no base64', () => noPem],
    ['algorithm', 'another algorithm', () => listAt(1, otherAlgorithm)],
  ])('attestation refuses with %s a list of %s', async (code, _, make) => {
    const refusal = current(make())
    await expect(refusal).rejects.toBeInstanceOf(UnusableListError)
    const given = (await refusal.catch((fault: UnusableListError) => fault)) as UnusableListError
    // These codes come from the check of the document, the others from reading the list.
    const isOfCheck = ['foreign', 'signature', 'key_usage', 'scope', 'unused'].includes(code)
    expect([given.code, given.exitCode]).toEqual([code, isOfCheck ? 1 : 2])
    expect(given.message).toMatch(/^--crl .*: expected/)
  })

  it('attestation fetches lists over http, bounded, without following redirects', async () => {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/zonal.crl`
    answer = listAt(1, { revoked: [entry(0x7002)] })
    expect(await run(document, '--at', AT, '--crl', url)).toMatchObject({
      code: 'certificate_revoked',
    })
    status = 302
    await expect(run(document, '--at', AT, '--crl', url)).rejects.toThrow('answered 302')
    status = 200
    answer = new Uint8Array(LISTS_BYTES_MAX + 1)
    await expect(run(document, '--at', AT, '--crl', url)).rejects.toThrow(
      `at most ${LISTS_BYTES_MAX} bytes`,
    )
    await expect(run(document, '--at', AT, '--crl', 'ftp://127.0.0.1/list')).rejects.toThrow(
      'cannot read',
    )
  })

  it('a list with altered bytes never throws anything else than its faults', () => {
    const list = listAt(1, { revoked: [entry(7)], extensions: [issuingPoint(fullName(POINT))] })
    for (let at = 0; at < list.length; at++)
      for (const bit of [1, 0x20, 0x80]) {
        const altered = list.slice()
        altered[at] = (altered[at] ?? 0) ^ bit
        try {
          parseLists(altered, 'altered')
        } catch (fault) {
          expect(fault).toBeInstanceOf(RevocationListError)
        }
      }
  })
})
