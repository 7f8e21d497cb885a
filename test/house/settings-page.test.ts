import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listSettings, readSettingsPage, renderSettings } from './settings-page.ts'

describe('docs/settings.md', () => {
  it('is what `npm run docs` writes', () => {
    expect(readSettingsPage()).toBe(renderSettings())
  })

  it('describes every variable of the gateway, with those of its rooms', () => {
    const names = listSettings('src/config.ts').flatMap((setting) => setting.names)
    for (const name of [
      'NODE_ENV',
      'CHAIN_ID',
      'ENCLAVE_URL',
      'OTEL_SERVICE_NAME',
      'PUBLIC_URL',
      'GROQ_API_KEY',
    ])
      expect(names).toContain(name)
    expect(new Set(names).size).toBe(names.length)
  })

  it('describes every variable that the enclave reads', () => {
    const source = readFileSync(join(import.meta.dirname, '../../enclave/config.ts'), 'utf8')
    const read = [...source.matchAll(/variables\.\w+\(\s*'([A-Z_0-9]+)'/g)].map(([, name]) => name)
    const names = listSettings('enclave/config.ts').flatMap((setting) => setting.names)
    expect(read.length).toBeGreaterThan(15)
    expect(read.filter((name) => !names.includes(name ?? ''))).toEqual([])
  })
})
