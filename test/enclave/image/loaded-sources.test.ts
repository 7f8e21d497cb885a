import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { listLoadedSources } from '#enclave/image/loaded-sources.ts'
import { folderOfTest } from '../../support/folders.ts'

let root: string
beforeEach(() => {
  root = folderOfTest()
  mkdirSync(join(root, 'enclave/deep'), { recursive: true })
})

const write = (path: string, source: string) => writeFileSync(join(root, 'enclave', path), source)
const list = async () =>
  (await listLoadedSources(root)).map((path) => path.slice('enclave/'.length))

describe('listLoadedSources', () => {
  it.each([
    ["import { b } from './b.ts'", ['b.ts', 'main.ts']],
    ["import {\n  type B,\n  b,\n} from './b.ts'", ['b.ts', 'main.ts']],
    ["import './b.ts'", ['b.ts', 'main.ts']],
    ["import * as b from './b.ts'", ['b.ts', 'main.ts']],
    ["export { b } from './b.ts'", ['b.ts', 'main.ts']],
    ["export * from './b.ts'", ['b.ts', 'main.ts']],
    ["const { b } = await import('./b.ts')", ['b.ts', 'main.ts']],
    ["import type { B } from './b.ts'", ['main.ts']],
    ["export type { B } from './b.ts'", ['main.ts']],
    ["import { decode } from 'cbor-x'\nimport { join } from 'node:path'", ['main.ts']],
    ["export const text = 'a'\n// from './b.ts'", ['main.ts']],
  ])('listLoadedSources follows %j as Node.js does', async (source, files) => {
    write('main.ts', source)
    write('b.ts', '')
    expect(await list()).toEqual(files)
  })

  it('listLoadedSources follows imports of imports, also round in a circle', async () => {
    write('main.ts', "import './deep/b.ts'\n")
    write('deep/b.ts', "import '../c.ts'\n")
    write('c.ts', "import './main.ts'\n")
    expect(await list()).toEqual(['c.ts', 'deep/b.ts', 'main.ts'])
  })

  it('listLoadedSources refuses a file that is not there, and an import that is computed', async () => {
    write('main.ts', "import './b.ts'\n")
    await expect(list()).rejects.toMatchObject({ name: 'SourceError' })
    write('b.ts', 'await import(process.env.NAME)\n')
    await expect(list()).rejects.toMatchObject({ name: 'SourceError' })
  })
})
