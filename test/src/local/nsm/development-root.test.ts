import { X509Certificate } from 'node:crypto'
import { chmod, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import {
  makeDevelopmentRoot,
  openDevelopmentRoot,
  rootCertificateFile,
} from '#src/local/nsm/development-root.ts'
import { folderOfTest } from '../../../support/folders.ts'

const NOW_MS = Date.parse('2026-11-21T08:00:00Z')
const YEAR_MS = 365.25 * 86_400_000

let folder: string
let rootFile: string
beforeEach(async () => {
  folder = folderOfTest()
  rootFile = join(folder, 'nsm', 'root.pem')
})

describe('openDevelopmentRoot', () => {
  it('openDevelopmentRoot makes a root on first use, readable by its owner only, and gives the same one from then on', async () => {
    const made = await openDevelopmentRoot(rootFile, NOW_MS)
    expect((await stat(rootFile)).mode & 0o777).toBe(0o600)
    const opened = await openDevelopmentRoot(rootFile, NOW_MS + 1000)
    expect(opened.certificate).toEqual(made.certificate)
    expect(opened.privateKey.equals(made.privateKey)).toBe(true)
  })

  it('the certificate lies alone beside the development root, without the key, and is restored', async () => {
    const { certificate } = await openDevelopmentRoot(rootFile, NOW_MS)
    const file = rootCertificateFile(rootFile)
    expect(file).toBe(join(folder, 'nsm', 'root.crt.pem'))
    const pem = await readFile(file, 'utf8')
    expect(pem).not.toContain('PRIVATE')
    expect(new Uint8Array(new X509Certificate(pem).raw)).toEqual(certificate)
    await rm(file)
    await openDevelopmentRoot(rootFile, NOW_MS)
    expect(await readFile(file, 'utf8')).toBe(pem)
    expect((await readdir(join(folder, 'nsm'))).sort()).toEqual(['root.crt.pem', 'root.pem'])
  })

  it('openDevelopmentRoot ends in one root when many start at the same moment', async () => {
    const roots = await Promise.all(
      Array.from({ length: 8 }, () => openDevelopmentRoot(rootFile, NOW_MS)),
    )
    expect(
      new Set(roots.map(({ certificate }) => Buffer.from(certificate).toString('hex'))).size,
    ).toBe(1)
  })

  it('openDevelopmentRoot refuses a file that others can read', async () => {
    await openDevelopmentRoot(rootFile, NOW_MS)
    await chmod(rootFile, 0o640)
    await expect(openDevelopmentRoot(rootFile, NOW_MS)).rejects.toMatchObject({
      code: 'invalid_root',
    })
  })

  it.each([
    ['nothing', () => ''],
    ['no certificate', () => makeDevelopmentRoot(NOW_MS).split('-----BEGIN CERT')[0] ?? ''],
    ['no key', () => makeDevelopmentRoot(NOW_MS).split('KEY-----\n').at(-1) ?? ''],
    [
      "another key's certificate",
      () =>
        `${makeDevelopmentRoot(NOW_MS).split('-----BEGIN CERT')[0]}-----BEGIN CERT${makeDevelopmentRoot(NOW_MS).split('-----BEGIN CERT')[1]}`,
    ],
  ])('openDevelopmentRoot refuses a file that holds %s', async (_, content) => {
    await openDevelopmentRoot(rootFile, NOW_MS)
    await writeFile(rootFile, content())
    await expect(openDevelopmentRoot(rootFile, NOW_MS)).rejects.toMatchObject({
      name: 'SoftwareNsmError',
      code: 'invalid_root',
    })
  })

  it('openDevelopmentRoot refuses a root that expires soon or is not valid yet, and does not replace it', async () => {
    await openDevelopmentRoot(rootFile, NOW_MS)
    await expect(openDevelopmentRoot(rootFile, NOW_MS + 29.9 * YEAR_MS)).resolves.toBeDefined()
    await expect(openDevelopmentRoot(rootFile, NOW_MS + 30 * YEAR_MS)).rejects.toMatchObject({
      code: 'invalid_root',
    })
    await expect(openDevelopmentRoot(rootFile, NOW_MS - YEAR_MS)).rejects.toMatchObject({
      code: 'invalid_root',
    })
  })
})
