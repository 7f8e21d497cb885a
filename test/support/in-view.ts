import type { Locator, Page } from 'playwright-core'
import { expect } from 'vitest'

/** The window sizes on which every page is checked: a desktop and a phone. */
export const SCREENS = [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
] as const

/** Expects that all of these are completely inside the window without a scroll. */
export async function expectInView(
  page: Page,
  parts: Readonly<Record<string, Locator>>,
): Promise<void> {
  const { width, height } = page.viewportSize() ?? { width: 0, height: 0 }
  const outside: Record<string, unknown> = {}
  for (const [name, part] of Object.entries(parts)) {
    await part.waitFor()
    const box = await part.boundingBox()
    const isIn =
      box !== null &&
      box.x >= 0 &&
      box.y >= 0 &&
      box.x + box.width <= width &&
      box.y + box.height <= height
    if (!isIn) outside[name] = box
  }
  expect(outside).toEqual({})
}
