import type { Page } from 'playwright-core'
import type { Scene } from './scene.ts'

/** A page in a state that is worth to be looked at. */
type Shot = {
  readonly name: string
  /** Its path, or its whole URL. */
  readonly path: (scene: Scene) => string
  /** Does what a reader would do first. */
  readonly prepare?: (page: Page, scene: Scene) => Promise<void>
  /** Documents show its first screen, wide and light. */
  readonly isShown?: boolean
  /** What a browser says of this page although nothing is wrong. */
  readonly expects?: RegExp
}

const QUESTION = 'Is clause 7.2 compatible with the framework agreement?'

export const SHOTS: readonly Shot[] = [
  { name: 'home', path: () => '/' },
  {
    name: 'home-search',
    path: () => '/',
    prepare: async (page) => {
      await page.getByRole('searchbox', { name: 'Look up' }).fill('999999999')
      await page.keyboard.press('Enter')
      await page.getByRole('link', { name: 'See all logs' }).waitFor()
    },
  },
  { name: 'missing', path: () => '/no/such/page', expects: /404/ },
  { name: 'verify', path: () => '/verify' },
  {
    name: 'verified',
    path: () => '/verify',
    prepare: (page, scene) => check(page, scene.bundle),
    isShown: true,
  },
  { name: 'verify-incomplete', path: () => '/verify', prepare: checkByRootAlone },
  {
    name: 'verify-not-accepted',
    path: () => '/verify',
    prepare: async (page, scene) => {
      await page.getByRole('button', { name: 'Do not use it' }).click()
      await check(page, scene.bundle)
    },
  },
  {
    name: 'verify-invalid',
    path: () => '/verify',
    prepare: (page, scene) => check(page, scene.bundle.replace('clause 7.2', 'clause 7.3')),
  },
  { name: 'verify-refused', path: () => '/verify', prepare: (page) => check(page, 'no JSON') },
  {
    name: 'saved-evidence',
    path: ({ savedFile }) => savedFile,
    prepare: (page) => page.locator('[data-verdict]').waitFor(),
  },
  {
    name: 'docs',
    path: () => '/docs',
    prepare: (page) => page.locator('.groups li').first().waitFor(),
  },
  {
    name: 'docs-group',
    path: () => '/docs/verified-chat',
    prepare: (page) => page.locator('.operation').first().waitFor(),
  },
  { name: 'logs', path: () => '/log' },
  {
    name: 'log',
    path: ({ notary }) => `/log/${notary}`,
    prepare: (page) => page.getByRole('heading', { name: 'Enclave' }).waitFor(),
  },
  {
    name: 'completion',
    path: ({ hash }) => `/c/${hash}`,
    prepare: (page) => page.locator('[data-verdict]').waitFor(),
  },
  { name: 'sign-in', path: () => '/console' },
  { name: 'playground-empty', path: () => '/console/playground', prepare: connect },
  { name: 'playground', path: () => '/console/playground', prepare: chat, isShown: true },
  {
    name: 'console-call',
    path: () => '/console/history',
    prepare: async (page, scene) => {
      await signIn(page, scene)
      await page
        .getByRole('button', { name: /^Details of/ })
        .last()
        .click()
      await page.getByRole('heading', { name: /^Call / }).waitFor()
    },
  },
  ...(
    [
      'history',
      'nodes',
      'keys',
      'limits',
      'accounts',
      'enclaves',
      'anchors',
      'administration',
    ] as const
  ).map(
    (part): Shot => ({
      name: `console-${part}`,
      path: () => `/console/${part}`,
      prepare: signIn,
    }),
  ),
]

async function chat(page: Page, scene: Scene): Promise<void> {
  await connect(page, scene)
  await page.getByRole('textbox', { name: 'Message' }).fill(QUESTION)
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByText(/Anchored in block \d+$/).waitFor()
}

async function connect(page: Page, scene: Scene): Promise<void> {
  await signIn(page, scene)
  // On a narrow screen it is folded.
  const connected = page.getByText('One enclave is as this development gateway says.')
  await connected.waitFor({ state: 'attached' })
}

async function signIn(page: Page, { adminKey }: Scene): Promise<void> {
  await page.getByLabel('API key').fill(adminKey)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('button', { name: 'Sign out' }).waitFor()
}

/** Gives the page evidence, which it checks. */
async function check(page: Page, text: string): Promise<void> {
  const evidence = {
    name: 'evidence.json',
    mimeType: 'application/json',
    buffer: Buffer.from(text),
  }
  await page.getByLabel('Drop a file here').setInputFiles(evidence)
  await page.locator('.result').waitFor()
}

/** Without the code that a reader expects, the evidence is incomplete. */
async function checkByRootAlone(page: Page, { service, bundle }: Scene): Promise<void> {
  await page.getByText('Your policy: code, configuration, roots, providers').click()
  await page.getByLabel('Trust these roots').setInputFiles(service.rootFile)
  await page.locator('[data-policy=own]').waitFor()
  await check(page, bundle)
}
