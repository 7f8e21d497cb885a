/** Whether `act` ends without throwing. */
export function succeeds(act: () => unknown): boolean {
  try {
    act()
    return true
  } catch {
    return false
  }
}
