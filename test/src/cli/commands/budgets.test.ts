import { beforeAll, describe, expect, it } from 'vitest'
import { keysIn } from '#src/accounts/open-keys.ts'
import { startDatabase } from '#src/storage/database.ts'
import { runCommandWith } from '../../../support/run-command.ts'
import { createTestDatabase } from '../../../support/test-database.ts'

let variables: Readonly<Record<string, string>>
let keyId = ''
const run = (...words: string[]) => runCommandWith(variables, ...words)
beforeAll(async () => {
  variables = { DATABASE_URL: await createTestDatabase() }
  const made = await run('keys', 'create', '--account', 'Ann', '--name', 'laptop')
  keyId = made.stdout.split('_')[1] ?? ''
})

describe('affidavit accounts set-budget and keys set-budget', () => {
  it('the set-budget commands set, change and remove what budgets lists', async () => {
    const set = (...words: string[]) => run('accounts', 'set-budget', 'Ann', ...words)
    expect(await set('money', 'month', '12.50')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Ann has a budget of money per month.\n',
    })
    expect((await set('tokens', 'total', '999999999999999')).code).toBe(0)
    expect((await run('keys', 'set-budget', keyId, 'requests', 'day', '0')).code).toBe(0)
    const { stdout } = await run('budgets')
    const rows = stdout
      .trim()
      .split('\n')
      .map((row) => row.split(/ {2,}/))
    expect(rows).toEqual([
      ['ACCOUNT', 'KEY', 'WHAT', 'PER', 'BOUND', 'USED', 'LEFT', 'RENEWS'],
      ['Ann', '-', 'money', 'month', '12.5', '0', '12.5', expect.stringMatching(/-01 00:00/)],
      ['Ann', '-', 'tokens', 'total', '999999999999999', '0', '999999999999999', '-'],
      ['Ann', keyId, 'requests', 'day', '0', '0', '0', expect.stringMatching(/ 00:00/)],
    ])
    expect((await set('money', 'month', '0.000000001')).code).toBe(0)
    expect((await set('tokens', 'total', 'none')).stderr).toBe(
      'Ann has no budget of tokens in total.\n',
    )
    const list = JSON.parse((await run('budgets', '--account', 'Ann', '--json')).stdout)
    expect(list).toMatchObject([
      { account: 'Ann', key: null, what: 'money', per: 'month', bound: 1, used: 0, left: 1 },
      { account: 'Ann', key: keyId, what: 'requests', per: 'day', bound: 0 },
    ])
    expect(JSON.parse((await run('budgets', '--account', 'Bob', '--json')).stdout)).toEqual([])
  })

  it.each([
    ['time', 'day', '1'],
    ['tokens', 'year', '1'],
    ['tokens', 'day', '-1'],
    ['tokens', 'day', '1.5'],
    ['tokens', 'day', '1e3'],
    ['tokens', 'day', '9007199254740993'],
    ['requests', 'day', ''],
    ['money', 'day', '1,50'],
    ['money', 'day', '10000000'],
    ['money', 'day', '0.0000000001'],
    ['money', 'day', '.5'],
    ['money', 'day', 'all'],
    ['tokens', 'day'],
  ])('the set-budget commands refuse %s per %s of %j', async (...words) => {
    // A bound that begins with a minus is not an option.
    const outcome = await run(
      'accounts',
      'set-budget',
      'Ann',
      ...words.slice(0, 2),
      '--',
      ...words.slice(2),
    )
    expect(outcome).toMatchObject({ code: 2, stdout: '' })
  })

  it.each([
    ['accounts', 'No\u001b[31mbody', 'no account has the name No\\u{1b}[31mbody'],
    ['keys', 'nonsense', 'no key has the id nonsense'],
  ])(
    '%s set-budget names what does not exist, without its control characters: %j',
    async (what, name, stderr) => {
      const outcome = await run(what, 'set-budget', name, 'tokens', 'day', '1')
      expect(outcome).toEqual({ code: 1, stdout: '', stderr })
    },
  )

  it('the budget of a key warns of the keys that the key made before', async () => {
    const url = variables.DATABASE_URL ?? ''
    const database = await startDatabase({ url, dataFolder: '' }, { warn: () => undefined })
    const keys = keysIn(database)
    const { id: account } = await keys.openAccount('Bea')
    const make = async (createdBy: string | null, expiresAt: number | null = null) => {
      const made = await keys.createFor(account, { name: 'made', expiresAt, createdBy })
      if (typeof made === 'string') throw new Error(made)
      return made.key.id
    }
    const maker = await make(null)
    const exchanged = await make(maker)
    const twinOfExchanged = await make(exchanged)
    const twin = await make(maker)
    await make(maker, 1)
    await keys.revoke(exchanged, { accountId: null, kept: twinOfExchanged })
    const set = (bound: string) => run('keys', 'set-budget', maker, 'requests', 'day', bound)
    const said = `${maker} has a budget of requests per day.\n`
    expect(await set('1')).toMatchObject({
      code: 0,
      stderr:
        `${said}Warning: this budget does not bound the keys that this key created: ` +
        `${twinOfExchanged}, ${twin}. Revoke them (affidavit keys revoke ID), or set a budget of ` +
        'the account (affidavit accounts set-budget).\n',
    })
    expect((await set('none')).stderr).not.toContain('Warning')
    for (const id of [twinOfExchanged, twin]) await keys.revoke(id)
    expect((await set('1')).stderr).toBe(said)
    await database.close()
  })
})
