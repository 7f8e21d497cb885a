import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { folderOfFile, saverIn } from '../../../support/folders.ts'
import { MADE_AT } from '../../../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  PCR_VALUES,
  standardChain,
} from '../../../support/nitro-builder/document-builder.ts'
import { runCommand } from '../../../support/run-command.ts'

const AT = String(MADE_AT.getTime() / 1000)
const pcr = (index: number) => `${index}=${encodeHex(PCR_VALUES.get(index) ?? new Uint8Array())}`
const zeroPcrs = new Map([
  ...PCR_VALUES,
  ...[0, 1, 2].map((index) => [index, new Uint8Array(48)] as const),
])

const folder = folderOfFile()
const save = saverIn(folder)
let root: string
beforeAll(async () => {
  root = await save('root.der', standardChain.cabundle[0] ?? '')
})
/** Runs the command in this process, and gives what it printed and the exit code of main. */
async function run(...args: readonly string[]) {
  const { code, stdout, stderr } = await runCommand('attestation', ...args)
  return { output: stdout, exitCode: code, stderr }
}

async function runJson(...args: readonly string[]) {
  const { output, exitCode } = await run(...args, '--json')
  return { ...JSON.parse(output), exitCode }
}

const trust = () => ['--root', root, '--at', AT]

describe('affidavit attestation', () => {
  it('attestation says who, when, which measurements and the outcome of each rule, and exits 0', async () => {
    const file = await save(
      'document.bin',
      buildDocument({ fields: { something_new: 1, nonce: null } }),
    )
    const { output, exitCode } = await run(
      file,
      ...trust(),
      '--pcr',
      pcr(0),
      '--pcr',
      `PCR${pcr(8)}`,
    )
    expect(exitCode).toBe(0)
    expect(output).toMatch(/^VALID\n/)
    expect(output).toContain('module    i-0123456789abcdef0-enc0123456789abcdef\n')
    expect(output).toContain('made      2026-03-04T05:06:07.000Z\n')
    expect(output).toContain(`PCR8      ${encodeHex(PCR_VALUES.get(8) ?? new Uint8Array())}\n`)
    expect(output).toContain(`SHA-256 ${encodeHex(standardChain.rootSha256)}\n`)
    expect(output).toContain('nonce       none\n')
    expect(output).toContain('something_new\n')
    expect(output.match(/^ {2}(passed|not checked|reported) +\d+ {2}/gm)).toHaveLength(25)
    expect(output).toMatch(/not checked +22 {2}nonce \(no nonce was asked for\)/)
  })

  it.each([
    ['base64', (bytes: Buffer) => bytes.toString('base64')],
    [
      'base64 in lines',
      (bytes: Buffer) =>
        `${bytes
          .toString('base64')
          .match(/.{1,76}/g)
          ?.join('\r\n')}\n`,
    ],
    ['base64 for URLs', (bytes: Buffer) => bytes.toString('base64url')],
    ['hex', (bytes: Buffer) => bytes.toString('hex')],
    [
      'hex in capitals with 0x and a newline',
      (bytes: Buffer) => `0x${bytes.toString('hex').toUpperCase()}\n`,
    ],
  ])('attestation reads a document in %s', async (_, encode) => {
    for (const prefix of ['', 'd2']) {
      const file = await save('document.txt', encode(Buffer.from(buildDocument({ prefix }))))
      expect(await runJson(file, ...trust(), '--any-measurement')).toMatchObject({ valid: true })
    }
  })

  it.each([
    ['measurements_not_given', []],
    [
      'measurement_mismatch',
      ['--pcr', pcr(0).replace(/.$/, (digit) => (digit === '0' ? '1' : '0'))],
    ],
    ['measurement_missing', ['--pcr', pcr(1).replace('1=', '16=')]],
    ['nonce_mismatch', ['--any-measurement', '--nonce', '00']],
    ['nonce_mismatch', ['--any-measurement', '--nonce', '']],
    ['certificate_expired', ['--any-measurement', '--at', String(Number(AT) + 7201)]],
    ['document_too_old', ['--any-measurement', '--at', String(Number(AT) + 61), '--max-age', '60']],
  ])('attestation refuses with %s and exits 1', async (code, args) => {
    const file = await save('document.bin', buildDocument())
    const { facts, ...result } = await runJson(file, ...trust(), ...args)
    expect(result).toMatchObject({ exitCode: 1, valid: false, code, message: expect.any(String) })
    expect(facts).toBeNull()
  })

  it('attestation refuses debug mode unless allowed, and says so then', async () => {
    const file = await save('document.bin', buildDocument({ fields: { pcrs: zeroPcrs } }))
    const args = [file, ...trust(), '--any-measurement']
    expect(await runJson(...args)).toMatchObject({ code: 'debug_mode' })
    expect(await runJson(...args, '--allow-debug')).toMatchObject({
      valid: true,
      facts: { debug_mode: true },
    })
    expect((await run(...args, '--allow-debug')).output).toMatch(/^VALID, IN DEBUG MODE/)
  })

  it('attestation shows what a refused document claims as claims, and which rule it broke', async () => {
    const file = await save(
      'document.bin',
      buildDocument({ signature: new Uint8Array(96).fill(1) }),
    )
    const { output, exitCode } = await run(file, ...trust(), '--any-measurement')
    expect(exitCode).toBe(1)
    expect(output).toMatch(/^REFUSED {2}signature_invalid\n/)
    expect(output).toContain('What the document claims (nothing here is proven)')
    expect(output).toMatch(/FAILED +20 {2}signature of the document \(signature_invalid: /)
    expect(output).toMatch(/not checked +24 /)
  })

  it('attestation does not let a document write on the terminal', async () => {
    const fields = { module_id: '\u001b[2J\nVALID', '\u202eevil': 1 }
    const file = await save('document.bin', buildDocument({ fields }))
    for (const args of [['--any-measurement'], []]) {
      const { output } = await run(file, ...trust(), ...args)
      expect(['\u001b', '\u202e', '\nVALID\n'].filter((mark) => output.includes(mark))).toEqual([])
    }
  })

  it.each<[string, (base64: string) => string | Uint8Array, string]>([
    ['in quotes', (base64) => `"${base64}"`, 'text in quotes (")'],
    [
      'in a member of JSON',
      (base64) => JSON.stringify({ id: 1, attestation_document: base64 }),
      'JSON: give the value of its member attestation_document',
    ],
    [
      'in JSON with other letters than ASCII',
      (base64) => JSON.stringify({ name: 'Zürich', document: base64 }),
      'JSON: give the value of its member document',
    ],
    [
      'behind a label',
      (base64) => `attestation: ${base64}`,
      'text that is neither hex nor base64 of a document',
    ],
    ['that is in gzip', (base64) => gzipSync(Buffer.from(base64, 'base64')), 'gzip'],
    ['that is a page of HTML', () => '\n<!DOCTYPE html>“not found”', 'HTML or XML'],
    ['in PEM', (base64) => `-----BEGIN CERTIFICATE-----\n${base64}\n`, 'PEM'],
  ])('a document %s is refused with what is around it', async (_, wrap, reported) => {
    const document = Buffer.from(buildDocument()).toString('base64')
    const file = await save('wrapped', wrap(document))
    const { exitCode, stderr } = await run(file, '--any-measurement', ...trust())
    expect([exitCode, stderr]).toEqual([
      1,
      expect.stringContaining(
        `expected the bytes of a document, or only their hex or base64, got ${reported}`,
      ),
    ])
  })

  it.each([
    ['both --pcr and --any-measurement', ['--pcr', pcr(0), '--any-measurement']],
    ['a PCR twice', ['--pcr', pcr(0), '--pcr', pcr(0)]],
    ['a PCR of 32 bytes', ['--pcr', `0=${'00'.repeat(32)}`]],
    ['PCR32', ['--pcr', pcr(0).replace('0=', '32=')]],
    ['a nonce that is no hex', ['--nonce', 'xyz']],
    ['a nonce of 1025 bytes', ['--nonce', '00'.repeat(1025)]],
    ['a time that is none', ['--at', 'now']],
    ['--at and --historical', ['--at', AT, '--historical']],
    ['--max-age and --historical', ['--max-age', '5', '--historical']],
    ['a negative age', ['--max-age', '-5']],
    ['an unknown option', ['--trust-me']],
  ])('attestation calls %s a usage error', async (_, args) => {
    const file = await save('document.bin', buildDocument())
    expect(await run(file, ...args)).toMatchObject({ exitCode: 2, output: '' })
  })

  it('attestation says of files that cannot be read that nothing was decided', async () => {
    const file = await save('document.bin', buildDocument())
    for (const words of [
      [join(folder, 'missing.bin'), '--any-measurement'],
      [file, '--root', '/nonexistent', '--any-measurement'],
    ] as const)
      expect((await run(...words)).exitCode).toBe(3)
  })
})
