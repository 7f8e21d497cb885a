import { describe, expect, it } from 'vitest'
import { collectModules, layOutModules } from '#enclave/image/boot-parts.ts'
import type { FileTree } from '#enclave/image/file-tree.ts'

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

describe('layOutModules', () => {
  it('layOutModules writes the order down beside the modules', () => {
    const tree = layOutModules(collectModules(TREE, ['virtio']))
    expect([...tree.keys()]).toEqual([
      'modules/virtio_ring.ko',
      'modules/virtio.ko',
      'modules/order',
    ])
    const order = tree.get('modules/order')
    expect(order?.kind === 'file' && Buffer.from(order.data).toString()).toBe(
      'virtio_ring.ko\nvirtio.ko\n',
    )
  })
})
