import type { Locator, Page } from 'playwright-core'

/** The window sizes on which every page is checked: a desktop and a phone. */
export const SCREENS = [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
] as const

/**
 * Gives which of these are completely inside the window without a scroll: for each `true`, or its
 * position. A test expects `{ name: true }` for all.
 */
export async function standInView(
  page: Page,
  parts: Readonly<Record<string, Locator>>,
): Promise<Readonly<Record<string, unknown>>> {
  const { width, height } = page.viewportSize() ?? { width: 0, height: 0 }
  const places = Object.entries(parts).map(async ([name, part]) => {
    await part.waitFor()
    const box = await part.boundingBox()
    const isIn =
      box !== null &&
      box.x >= 0 &&
      box.y >= 0 &&
      box.x + box.width <= width &&
      box.y + box.height <= height
    return [name, isIn || box] as const
  })
  return Object.fromEntries(await Promise.all(places))
}
