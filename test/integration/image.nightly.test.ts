import { execFile, spawn } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseRelease } from '#attestation/release/release.ts'
import { readCacheFolder } from '#enclave/image/config.ts'
import { serveSoftwareNsm } from '#src/local/nsm/nsm-server.ts'
import { readCpio } from '../enclave/image/read-cpio.ts'
import { findImageHindrance } from '../support/image-hindrance.ts'
import { needNo, needRoot } from '../support/needs.ts'

const project = join(import.meta.dirname, '../..')
const run = promisify(execFile)
const root = mkdtempSync(join(tmpdir(), 'image-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** Null when the image can be built here, else the reason why not. */
const ROOT = needRoot()
const IMAGE = needNo(await findImageHindrance())

/** The committed project in a new folder, with settings that differ on another machine. */
type Machine = {
  readonly name: string
  readonly umask: string
  readonly zone: string
  readonly locale: string
  /** Seconds; the modification time of all its files. */
  readonly time: number
}
const MACHINES: readonly Machine[] = [
  { name: 'one', umask: '022', zone: 'UTC', locale: 'C', time: 1_000_000_000 },
  {
    name: 'a/second place',
    umask: '077',
    zone: 'Pacific/Auckland',
    locale: 'tr_TR.UTF-8',
    time: 1_800_000_000,
  },
]
const OPTIONS = ['--chain-id', '31337', '--contract', `0x${'5f'.repeat(20)}`, '--output', 'out']
const FILES = [
  'affidavit.eif',
  'kernel',
  'boot.cpio.gz',
  'application.cpio.gz',
  'measurements.json',
  'report.json',
]

async function buildOn({ name, umask, zone, locale, time }: Machine): Promise<string> {
  const folder = join(root, name)
  mkdirSync(dirname(folder), { recursive: true })
  await run('git', ['clone', '--quiet', '--no-local', project, folder])
  symlinkSync(join(project, 'node_modules'), join(folder, 'node_modules'))
  const { stdout } = await run('git', ['ls-files', '-z'], { cwd: folder })
  for (const file of stdout.split('\0').filter((path) => path !== ''))
    utimesSync(join(folder, file), time, time)
  const command = `umask ${umask} && exec "$0" enclave/image/main.ts "$@"`
  await run('sh', ['-c', command, process.execPath, ...OPTIONS], {
    cwd: folder,
    env: { ...process.env, TZ: zone, LC_ALL: locale, IMAGE_CACHE: readCacheFolder() },
  })
  return join(folder, 'out')
}

describe.runIf(IMAGE.isMet)(IMAGE.title('npm run image'), () => {
  const built: string[] = []
  const read = (file: string) => readFileSync(join(built[0] ?? '', file))
  const release = () => parseRelease(JSON.parse(read('measurements.json').toString()))

  beforeAll(async () => {
    built.push(...(await Promise.all(MACHINES.map(buildOn))))
  }, 600_000)

  it('npm run image gives identical bytes in two folders with different umasks, time zones, locales and file times', () => {
    for (const file of FILES)
      expect(Buffer.compare(read(file), readFileSync(join(built[1] ?? '', file))), file).toBe(0)
  })

  it('npm run image publishes the measurements that `affidavit measure` computes of the image', async () => {
    const words = ['src/cli/main.ts', 'measure', '--json', join(built[0] ?? '', 'affidavit.eif')]
    const { stdout } = await run(process.execPath, words, { cwd: project })
    const { facts } = JSON.parse(stdout)
    const { pcr0, pcr1, pcr2, pcr8 } = facts.measurements
    expect({ PCR0: pcr0, PCR1: pcr1, PCR2: pcr2 }).toEqual(release().measurements)
    expect(pcr8).toBeNull()
    expect(facts.sections.map(({ kind }: { kind: string }) => kind)).toEqual([
      'kernel',
      'cmdline',
      'metadata',
      'ramdisk',
      'ramdisk',
    ])
  })

  it('the image names the commit and the digests of all that went in, and stays under 80 MB', async () => {
    const { stdout } = await run('git', ['rev-parse', 'HEAD'], { cwd: join(root, 'one') })
    expect(release().git_commit).toBe(stdout.trim())
    expect(Object.keys(release().inputs)).toEqual(
      expect.arrayContaining(['kernel', 'package-lock.json']),
    )
    expect(read('affidavit.eif').length).toBeLessThan(80_000_000)
  })

  it.runIf(ROOT.isMet)(
    ROOT.title('the image has a root in which the verifier starts, alone'),
    async () => {
      const folder = join(root, 'rootfs')
      mkdirSync(folder)
      unpack(gunzipSync(read('application.cpio.gz')), folder)
      const nsm = await serveSoftwareNsm({
        socketPath: join(folder, 'rootfs/run/nsm.sock'),
        rootFile: join(root, 'root.pem'),
      })
      const environment = [
        'NODE_ENV=development',
        'NSM=software',
        'NSM_SOCKET=/run/nsm.sock',
        'ENCLAVE_SOCKET=/run/enclave.sock',
      ]
      const settings = readFileSync(join(folder, 'rootfs/etc/affidavit/enclave.env'), 'utf8')
        .trim()
        .split('\n')
      const verifier = spawn(
        'chroot',
        [
          join(folder, 'rootfs'),
          '/bin/busybox',
          'env',
          '-i',
          ...settings,
          ...environment,
          '/usr/bin/node',
          '/opt/affidavit/enclave/main.ts',
        ],
        { stdio: ['ignore', 'pipe', 'pipe'] },
      )
      const said = await new Promise<string>((resolve) => {
        let text = ''
        verifier.stderr.on('data', (chunk) => (text += chunk))
        verifier.stdout.once('data', (chunk) => resolve(String(chunk)))
        verifier.once('exit', () => resolve(text))
      })
      verifier.kill()
      await nsm.close()
      expect(JSON.parse(said)).toMatchObject({ event: 'ready', nsm: 'software' })
    },
  )

  it.runIf(ROOT.isMet)(
    ROOT.title('the image has a root in which socat and busybox start'),
    async () => {
      const within = (...words: readonly string[]) =>
        run('chroot', [join(root, 'rootfs/rootfs'), ...words])
      expect((await within('/usr/bin/socat', '-V')).stdout).toContain('WITH_VSOCK 1')
      expect((await within('/bin/sh', '-c', 'echo alive')).stdout).toBe('alive\n')
    },
  )
})

/** Writes an archive's files and links as Linux would do. */
function unpack(archive: Uint8Array, folder: string): void {
  for (const { path, mode, data } of readCpio(archive)) {
    const target = join(folder, path)
    const type = mode & 0o170000
    if (type === 0o040000) mkdirSync(target, { recursive: true, mode: mode & 0o7777 })
    else if (type === 0o120000) symlinkSync(Buffer.from(data).toString(), target)
    else writeFileSync(target, data, { mode: mode & 0o7777 })
  }
}
