import type { Page } from 'playwright-core'
import type { Scene } from './scene.ts'

/** A page in a state that is worth to be looked at. */
type Shot = {
  readonly name: string
  readonly path: (scene: Scene) => string
  /** Does what a reader would do before he sees it. */
  readonly prepare?: (page: Page, scene: Scene) => Promise<void>
  /** What of it stands in the README, as a selector; left out: nothing. */
  readonly shown?: string
}

export const SHOTS: readonly Shot[] = [
  { name: 'home', path: () => '/' },
  { name: 'verify', path: () => '/verify' },
  {
    name: 'verify-good',
    path: () => '/verify',
    prepare: (page, scene) => verify(page, scene, scene.bundle),
    shown: 'section.result',
  },
  {
    name: 'verify-damaged',
    path: () => '/verify',
    prepare: (page, scene) => verify(page, scene, scene.bundle.replace('clause 7.2', 'clause 7.3')),
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
  { name: 'playground', path: () => '/console/playground', prepare: chat, shown: 'main' },
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
  await signIn(page, scene)
  await page.getByLabel('Drop files here, or choose them').setInputFiles(scene.service.expectFile)
  await page.locator('#question').fill('Is clause 7.2 compatible with the framework agreement?')
  await page.getByRole('button', { name: 'Send' }).click()
  await page.getByRole('button', { name: 'Save the proof' }).first().waitFor()
}

async function signIn(page: Page, { adminKey }: Scene): Promise<void> {
  await page.getByLabel('API key').fill(adminKey)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('button', { name: 'Sign out' }).waitFor()
}

/** Gives the page a bundle, and what is to be expected. */
async function verify(page: Page, { service }: Scene, bundle: string): Promise<void> {
  const panel = page.getByText('What you expect: code, configuration, roots')
  await panel.click()
  await page.getByLabel('Fill in from a file').setInputFiles(service.expectFile)
  const field = page.getByLabel('Or measurements')
  while ((await field.inputValue()) === '') await page.waitForTimeout(50)
  await panel.click()
  await page.getByLabel('Drop a file here').setInputFiles({
    ...{ name: 'evidence.json', mimeType: 'application/json', buffer: Buffer.from(bundle) },
  })
  await page.locator('.result').waitFor()
}
