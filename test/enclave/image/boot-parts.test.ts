import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { collectBootParts, collectModules } from '#enclave/image/boot-parts.ts'
import type { DebianPackage } from '#enclave/image/debian-packages.ts'
import { type FileTree, textFile } from '#enclave/image/file-tree.ts'
import type { OpenedPackage } from '#enclave/image/open-parts.ts'
import { folderOfFile } from '../../support/folders.ts'

const root = folderOfFile()
const put = (path: string, text: string) => {
  writeFileSync(join(root, path), text)
  return join(root, path)
}
mkdirSync(join(root, 'enclave/image/guest'), { recursive: true })
put('enclave/image/guest/boot-init', '#!ours')
const own = {
  kernel: put('k', 'own kernel'),
  cmdline: put('c', 'console=ttyS0 quiet\n'),
  init: put('i', 'theirs'),
  nsm: put('n', 'driver'),
}

const packageOf = (into: DebianPackage['into'], tree: FileTree): OpenedPackage => ({
  pinned: {
    name: 'x',
    version: '1',
    architecture: 'amd64',
    sha256: '0'.repeat(64),
    size: 1,
    into,
    why: 'test',
    take: ['x'],
  },
  tree,
})
const opened = [
  packageOf(['boot'], new Map([['bin/busybox', textFile('busybox', 0o755)]])),
  packageOf(
    ['kernel'],
    new Map([
      ['boot/vmlinuz-6.1', textFile('debian kernel')],
      ['lib/modules/vsock.ko', textFile('\0depends=\0')],
    ]),
  ),
]
const kernel = { cmdline: 'console=ttyS0', modules: [{ name: 'vsock', why: 'test' }] }
const NONE = { kernel: null, initFile: null, nsmModuleFile: null }
const collect = (options: object) =>
  collectBootParts(root, { ...NONE, ...options }, { kernel, opened })
const read = (tree: FileTree, path: string) => {
  const entry = tree.get(path)
  return entry?.kind === 'file' ? Buffer.from(entry.data).toString() : null
}

describe('collectBootParts', () => {
  it("collectBootParts takes Debian's kernel, its modules and our init script", async () => {
    const parts = await collect({})
    expect(Buffer.from(parts.kernel).toString()).toBe('debian kernel')
    expect(parts).toMatchObject({ cmdline: 'console=ttyS0', kernelVersion: '6.1', own: {} })
    expect(read(parts.ramdisk, 'init')).toBe('#!ours')
    expect(read(parts.ramdisk, 'modules/order')).toBe('vsock.ko\n')
    expect(parts.ramdisk.get('dev/console')).toMatchObject({ kind: 'device', major: 5, minor: 1 })
  })

  it("collectBootParts lays the operator's kernel, init and driver out as AWS's, with nothing of ours", async () => {
    const parts = await collect({
      kernel: { file: own.kernel, cmdlineFile: own.cmdline },
      initFile: own.init,
      nsmModuleFile: own.nsm,
    })
    expect(Buffer.from(parts.kernel).toString()).toBe('own kernel')
    expect(parts.cmdline).toBe('console=ttyS0 quiet')
    expect([...parts.ramdisk.keys()].sort()).toEqual(['init', 'nsm.ko'])
    expect(read(parts.ramdisk, 'init')).toBe('theirs')
    expect(Object.keys(parts.own).sort()).toEqual(['cmdline', 'init', 'kernel', 'nsm.ko'])
  })

  it('collectBootParts refuses a file that is not there, and a command line of two lines', async () => {
    await expect(collect({ initFile: join(root, 'gone') })).rejects.toMatchObject({
      code: 'options',
    })
    const cmdlineFile = put('two', 'a\nb')
    await expect(collect({ kernel: { file: own.kernel, cmdlineFile } })).rejects.toMatchObject({
      code: 'options',
    })
  })
})

const module = (needs: string) =>
  ({
    kind: 'file',
    mode: 0o755,
    data: Buffer.from(`\x7fELF\0license=GPL\0depends=${needs}\0name=x\0`, 'latin1'),
  }) as const

const TREE: FileTree = new Map([
  ['lib/modules/6/net/virtio_net.ko', module('virtio,net_failover')],
  ['lib/modules/6/net/net_failover.ko', module('failover')],
  ['lib/modules/6/net/failover.ko', module('')],
  ['lib/modules/6/virtio/virtio.ko', module('virtio-ring')],
  ['lib/modules/6/virtio/virtio-ring.ko', module('')],
  ['lib/modules/6/odd.ko', module('gone')],
])

describe('collectModules', () => {
  it('collectModules gives a module after all that it needs, each once', () => {
    const modules = collectModules(TREE, ['virtio_net', 'virtio'])
    expect([...modules.keys()]).toEqual([
      'virtio_ring',
      'virtio',
      'failover',
      'net_failover',
      'virtio_net',
    ])
  })

  it('collectModules refuses a module that the kernel package lacks, wanted or needed', () => {
    expect(() => collectModules(TREE, ['nsm'])).toThrow('no module nsm, wanted by kernel.json')
    expect(() => collectModules(TREE, ['odd'])).toThrow('no module gone, wanted by odd')
  })
})
