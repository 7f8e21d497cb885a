import { describe, expect, it } from 'vitest'
import { runCommandWith } from '../../../support/run-command.ts'
import { createTestDatabase } from '../../../support/test-database.ts'

describe('affidavit migrate', () => {
  it('the migrate command runs what is outstanding, and then nothing', async () => {
    const DATABASE_URL = await createTestDatabase({ empty: true })
    const first = await runCommandWith({ DATABASE_URL }, 'migrate')
    expect(first).toMatchObject({ code: 0, stderr: '' })
    expect(first.stdout).toMatch(/^Ran \d+ migrations: 2026-11-26-initial/)
    expect(await runCommandWith({ DATABASE_URL }, 'migrate')).toEqual({
      code: 0,
      stdout: 'The schema is current: there was nothing to do.\n',
      stderr: '',
    })
  })

  it('the migrate command refuses to run without a server', async () => {
    const { code, stderr } = await runCommandWith({}, 'migrate')
    expect(code).not.toBe(0)
    expect(stderr).toContain('expected DATABASE_URL')
    const away = await runCommandWith(
      { DATABASE_URL: 'postgres://u:secret@127.0.0.1:1/a' },
      'migrate',
    )
    expect(away.code).toBe(1)
    expect(away.stderr).toContain('DATABASE_URL cannot be used')
    expect(away.stderr).not.toContain('secret')
  })
})
