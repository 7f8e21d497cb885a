import { describe, expect, it } from 'vitest'
import { mergeTrees, TreeError, textFile } from '#enclave/image/file-tree.ts'

describe('mergeTrees', () => {
  it('mergeTrees joins trees, and directories that two of them have', () => {
    const directory = { kind: 'directory', mode: 0o755 } as const
    const left = new Map([
      ['etc', directory],
      ['etc/a', textFile('a')],
    ] as const)
    const right = new Map([
      ['etc', directory],
      ['etc/b', textFile('b')],
    ] as const)
    expect([...mergeTrees(left, right).keys()]).toEqual(['etc', 'etc/a', 'etc/b'])
  })

  it('mergeTrees refuses a file that two trees have, even with the same bytes', () => {
    const tree = new Map([['a', textFile('a')]])
    expect(() => mergeTrees(tree, tree)).toThrow(TreeError)
  })
})
