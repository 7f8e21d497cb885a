import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const text = readFileSync(join(import.meta.dirname, '../../../enclave/image/Dockerfile'), 'utf8')
const instructions = text.replaceAll('\\\n', ' ').split('\n')

describe('the Dockerfile', () => {
  it('the Dockerfile builds only on what its arguments name, and gives none of them a default', () => {
    const bases = instructions
      .filter((line) => line.startsWith('FROM '))
      .map((line) => line.split(' ')[1])
    expect(bases.join(' ')).toMatch(/^\$\{BUILDER_IMAGE\} scratch$/)
    expect(instructions.filter((line) => /^ARG .*=/.test(line))).toEqual([])
    expect(text).not.toMatch(/sha256:[0-9a-f]{8}/)
  })

  it('the Dockerfile installs with `npm install --no-save`, not `npm ci`, which refuses our lock file', () => {
    const installs = instructions.filter((line) => /^RUN npm /.test(line))
    expect(installs).toEqual(['RUN npm install --ignore-scripts --no-save --no-audit --no-fund'])
  })

  it.each([
    [`node@sha256:${'ab'.repeat(32)}`, 0],
    ['node:24-bookworm', 1],
  ])('the Dockerfile takes or refuses the base image %j', (image, status) => {
    const check = instructions
      .find((line) => line.startsWith('RUN echo "$BUILDER_IMAGE"'))
      ?.slice('RUN '.length)
    const result = spawnSync('/bin/sh', ['-euc', check ?? 'exit 9'], {
      env: { ...process.env, BUILDER_IMAGE: image },
    })
    expect(result.status).toBe(status)
  })
})
