"""Programs for those who work on bloomstore: they measure, compare and torture. Not installed.

bench/             speed, as ratios within one run
torture/           kills, damage, interrupts and power cuts by the thousand
compare/           what layouts, growth and opening cost
bench.py           starts bench/filters.py
bench_sql.py       starts bench/sql.py
bench_rebuild.py   starts bench/rebuild.py
torture.py         starts torture/main.py
powerloss.py       starts torture/power_cuts.py
rebuild.py         starts `bloomstore rebuild`
first_steps.py     the README's first command
find_checkout.py   puts the checkout on the path of these scripts
"""
