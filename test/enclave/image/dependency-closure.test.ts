import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseDependencies } from '#enclave/image/dependency-closure.ts'

const project = join(import.meta.dirname, '../../..')
const list = readFileSync(join(project, 'enclave/image/dependencies.json'))
const lock = readFileSync(join(project, 'package-lock.json'))
const real = parseDependencies(list, lock)

const change = (bytes: Uint8Array, edit: (value: never) => unknown) =>
  Buffer.from(JSON.stringify(edit(JSON.parse(Buffer.from(bytes).toString()) as never)))

describe('parseDependencies', () => {
  it('parseDependencies gives each package of the list the version and the digest of the lock file', () => {
    const locked = JSON.parse(lock.toString()).packages
    expect(real.packages.length).toBeGreaterThan(4)
    for (const { name, version, integrity } of real.packages)
      expect(locked[`node_modules/${name}`]).toMatchObject({ version, integrity })
  })

  it('parseDependencies leaves out native add-ons, and every other platform of koffi', () => {
    const names = real.packages.map(({ name }) => name)
    expect(names.filter((name) => /extract|koffi-/.test(name))).toEqual([
      '@koromix/koffi-linux-x64',
    ])
  })

  it('parseDependencies refuses a list that lacks what a package depends on', () => {
    const short = change(list, (value: { packages: { name: string }[] }) => ({
      ...value,
      packages: value.packages.filter(({ name }) => name !== 'uint8array-tools'),
    }))
    expect(() => parseDependencies(short, lock)).toThrow(
      expect.objectContaining({
        code: 'closure_incomplete',
        message: expect.stringContaining('uint8array-tools'),
      }),
    )
  })

  it('parseDependencies refuses a Node.js other than the version that the project is tested with', () => {
    const other = change(list, (value: { runtime: object }) => ({
      ...value,
      runtime: { ...value.runtime, version: '24.0.0' },
    }))
    expect(() => parseDependencies(other, lock)).toThrow(
      expect.objectContaining({ code: 'pins_malformed' }),
    )
  })

  it('parseDependencies refuses a package that the lock file lacks', () => {
    const other = change(list, (value: { packages: object[] }) => ({
      ...value,
      packages: [...value.packages, { name: 'left-out', why: 'x', take: ['x'] }],
    }))
    expect(() => parseDependencies(other, lock)).toThrow('no version and SHA-512 of left-out')
  })
})
