import { createHash } from 'node:crypto'
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { measureSource, parseGivenMeasurements } from '#src/local/nsm/measured-source.ts'
import { folderOfTest } from '../../../support/folders.ts'

const MAIN = "import './deep/b.ts'\nexport * from '../attestation/a.ts'\n"

let folder: string
let root: string
beforeEach(async () => {
  folder = folderOfTest()
  root = join(folder, 'checkout')
  await mkdir(join(root, 'attestation'), { recursive: true })
  await mkdir(join(root, 'enclave', 'deep'), { recursive: true })
  await writeFile(join(root, 'attestation', 'a.ts'), 'a')
  await writeFile(join(root, 'enclave', 'main.ts'), MAIN)
  await writeFile(join(root, 'enclave', 'deep', 'b.ts'), 'b')
  await writeFile(join(root, 'enclave', 'README.md'), 'read me')
  await writeFile(join(root, 'package-lock.json'), '{}')
})

const RUNTIME = ['node v24.0.0', 'platform linux-x64']
const measure = (runtime = RUNTIME) => measureSource({ root, runtime })
const sha384 = (data: string | Uint8Array) => createHash('sha384').update(data).digest()
const register = (list: string) =>
  new Uint8Array(sha384(Buffer.concat([new Uint8Array(48), sha384(list)])))

describe('measureSource', () => {
  it('measureSource gives the digest of the documented lists', async () => {
    const runtime = `${RUNTIME.join('\n')}\n${sha384('{}').toString('hex')}  package-lock.json\n`
    const application = [
      `${sha384('a').toString('hex')}  attestation/a.ts\n`,
      `${sha384('b').toString('hex')}  enclave/deep/b.ts\n`,
      `${sha384(MAIN).toString('hex')}  enclave/main.ts\n`,
    ].join('')
    expect(await measure()).toEqual({
      pcr0: register(runtime + application),
      pcr1: register(runtime),
      pcr2: register(application),
    })
  })

  it.each([
    ['a changed byte', () => writeFile(join(root, 'attestation', 'a.ts'), 'A')],
    [
      'an added file',
      async () => {
        await writeFile(join(root, 'enclave', 'deep', 'c.ts'), '')
        await writeFile(join(root, 'enclave', 'deep', 'b.ts'), "import './c.ts'\n")
      },
    ],
    ['a removed file', () => writeFile(join(root, 'enclave', 'main.ts'), "import './deep/b.ts'\n")],
    [
      'a renamed file',
      async () => {
        await rename(join(root, 'attestation', 'a.ts'), join(root, 'attestation', 'z.ts'))
        await writeFile(join(root, 'enclave', 'main.ts'), MAIN.replace('a.ts', 'z.ts'))
      },
    ],
  ])('measureSource shows %s in PCR0 and PCR2 but not in PCR1', async (_, change) => {
    const before = await measure()
    await change()
    const after = await measure()
    expect(after.pcr0).not.toEqual(before.pcr0)
    expect(after.pcr2).not.toEqual(before.pcr2)
    expect(after.pcr1).toEqual(before.pcr1)
  })

  it('measureSource shows another dependency or another Node in PCR0 and PCR1 but not in PCR2', async () => {
    const before = await measure()
    const otherNode = await measure(['node v24.0.1', 'platform linux-x64'])
    await writeFile(join(root, 'package-lock.json'), '{"a":1}')
    for (const after of [otherNode, await measure()]) {
      expect(after.pcr0).not.toEqual(before.pcr0)
      expect(after.pcr1).not.toEqual(before.pcr1)
      expect(after.pcr2).toEqual(before.pcr2)
    }
  })

  it('measureSource refuses a symbolic link, behind which anything may lie', async () => {
    await symlink('/etc/hostname', join(root, 'enclave', 'link.ts'))
    await writeFile(join(root, 'enclave', 'main.ts'), "import './link.ts'\n")
    await expect(measure()).rejects.toMatchObject({
      name: 'SoftwareNsmError',
      code: 'invalid_source',
    })
  })

  it.each(['enclave', 'package-lock.json'])(
    'measureSource refuses a checkout without %s',
    async (name) => {
      await rm(join(root, name), { recursive: true })
      await expect(measure()).rejects.toMatchObject({ code: 'invalid_source' })
    },
  )
})

const registers = { '0': 'a0'.repeat(48), '1': 'b1'.repeat(48), '2': 'c2'.repeat(48) }
const parse = (value: unknown) => parseGivenMeasurements(Buffer.from(JSON.stringify(value)))

describe('parseGivenMeasurements', () => {
  it('parseGivenMeasurements gives the three registers', () => {
    const { pcr0, pcr1, pcr2 } = parse(registers)
    expect([pcr0, pcr1, pcr2].map(encodeHex)).toEqual(Object.values(registers))
  })

  it.each([
    ['an array', [registers]],
    ['null', null],
    ['a register that is missing', { '0': registers['0'], '1': registers['1'] }],
    ['a register too many', { ...registers, '8': registers['0'] }],
    ['a register that is short by a digit', { ...registers, '1': 'b'.repeat(95) }],
    ['a register that is long by a byte', { ...registers, '1': 'b'.repeat(98) }],
    ['upper-case digits', { ...registers, '2': 'C2'.repeat(48) }],
    ['a prefix', { ...registers, '2': `0x${'c'.repeat(94)}` }],
    ['a line break after the digits', { ...registers, '2': `${registers['2']}\n` }],
    ['a number', { ...registers, '0': 0 }],
  ])('parseGivenMeasurements refuses a text with %s', (_, value) => {
    expect(() => parse(value)).toThrow(FormatError)
  })

  it.each([
    ['no JSON', 'PCR0'],
    ['nothing', ''],
    ['a member twice', JSON.stringify(registers).replace('{', `{"0":"${registers['1']}",`)],
  ])('parseGivenMeasurements refuses a text with %s', (_, text) => {
    expect(() => parseGivenMeasurements(Buffer.from(text))).toThrow(JsonError)
  })
})
