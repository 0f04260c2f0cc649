"""Mandarin sentences for the teacher to read: what an ordering agent says, and general sentences for coverage.

Every drink, alias, option and topping of the menu occurs; numbers from 1 to 2000 occur in words with 块, 块五, 元, 杯
and 号; order numbers are read digit by digit. A reply holds words alone, never digits, as the agent's own replies do.
`sentences(menu, count, seed)` is deterministic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_DIGITS = "零一二三四五六七八九"

GENERAL = (
    """
今天外面的风很大，出门要多穿一点。|昨天晚上我们去湖边散步了。|这家店的老板是从福建来的。|请把窗户关上，谢谢。|他的女儿明年就要上小学了。
火车晚点了四十分钟，大家都有些着急。|我觉得这个颜色比那个更漂亮。|周末你打算去哪里玩？|图书馆早上九点开门，晚上十点关门。|妈妈做的红烧肉特别香。
雨停了，天边出现了一道彩虹。|你的普通话说得真好。|我把钥匙忘在办公室里了。|这本书讲的是一个渔夫的故事。|医生说他需要多休息几天。
孩子们在操场上跑来跑去。|请问地铁站怎么走？|往前走三百米，然后左转。|这件衣服打八折，很便宜。|他们结婚已经二十年了。
老师让我们写一篇作文。|春天来了，院子里的桃花开了。|我每天骑自行车上班。|她弹钢琴弹得非常好听。|超市里的草莓又大又甜。
冬天的北方常常下雪。|请您稍等，我去问一下经理。|这道数学题有点难。|我们班一共有三十六个同学。|他喜欢一边喝咖啡一边看报纸。
明天上午有一个重要的会议。|小猫躲在沙发下面睡着了。|这座桥是一百年前修的。|我从来没有见过这么大的西瓜。|爷爷每天早上去公园打太极拳。
飞机马上就要起飞了，请系好安全带。|这里的空气很新鲜。|我想换一个靠窗的座位。|请在这里签上您的名字。|他把杯子里的水喝光了。
电影院旁边新开了一家面馆。|你能帮我拍一张照片吗？|弟弟的个子比我还高。|路上堵车，我可能会迟到。|请不要在房间里抽烟。
那条围巾是姐姐送给我的生日礼物。|月亮像一个圆圆的盘子。|他用筷子夹起一块豆腐。|我们坐船过了长江。|爸爸在厨房里切菜。
这个软件用起来非常方便。|空调坏了，屋里热得像蒸笼。|下课以后我们去踢足球吧。|她穿着一条紫色的裙子。|快递员把包裹放在门口了。
请问洗手间在哪边？|洗手间在二楼，上楼以后右拐。|先生，您的外卖到了。|真不巧，今天的蛋糕都卖光了。|欢迎下次再来，祝您生活愉快。
我们的营业时间是早上八点到晚上十点半。|可以用现金、刷卡或者手机付款。|需要给您装袋吗？|外带还是在这里喝？|请当心，杯子有一点烫。
吸管和纸巾在您的右手边。|请您排队，按顺序来取。|您的意见我会转告给店长。|这款是我们的招牌，很多客人都喜欢。|天气热，来一杯冰的最舒服了。
我只会帮您点饮料，别的事情恐怕帮不上忙。|这个问题我回答不了，不过我可以帮您点一杯茶。|听起来您今天心情不错。|谢谢夸奖，很高兴为您服务。|没关系，您慢慢想，我等您。
牛群在草原上吃草，远处是雪山。|翻过这座山就能看见大海。|他摔了一跤，膝盖擦破了皮。|奶奶戴上眼镜读报纸。|船长命令大家穿上救生衣。
厨师把葱、姜、蒜切碎了。|森林里住着松鼠、狐狸和黑熊。|窗台上摆着一盆兰花。|我的邻居是一位退休的军人。|雷声轰隆隆地响，闪电划破天空。
他女朋友是学法律的。|请把音乐的声音调小一点。|这双皮鞋穿起来很舒服。|农民在田里种水稻。|她的梦想是当一名宇航员。
风筝越飞越高，线快要断了。|请给我两张去广州的票。|昨夜的暴雨冲垮了小桥。|饺子是猪肉白菜馅的。|医院对面有一家药店。
这句话用英语怎么说？|他的胡子又长又密。|学生们正在准备期末考试。|我的手机快没电了。|请您坐下来，喝杯热茶。
哥哥参加了马拉松比赛，跑了第二名。|阳光照在波光粼粼的水面上。|墙上挂着一幅山水画。|贝壳被海浪冲到了沙滩上。|他一口气爬上了十六楼。
别担心，事情总会解决的。|蜜蜂嗡嗡地飞来飞去。|这群年轻人充满了热情。|请仔细核对一下您的订单。|我刚才说错了，应该是七分糖。
总共花了多少钱？|这辆车跑得飞快，像一阵旋风。|春节期间全家人聚在一起吃团圆饭。|警察抓住了那个小偷。|他轻轻地推开门，走了进来。
孔雀展开了美丽的尾巴。|棉花糖又软又甜。|他把伞借给了一个陌生人。|冰箱里还有三瓶酸奶。|屋顶上的瓦片被风吹掉了。
裁缝量了量他的腰围。|森林着火了，消防员赶来灭火。|他悄悄地把信塞进了抽屉。|桂林的山水名不虚传。|请问您贵姓？
我姓吕，双口吕。|略微加一点盐，味道会更好。|虽然下着雨，比赛还是照常举行。|女士优先，您先请。|律师仔细地看完了全部材料。
老虎和狮子都是猛兽。|热水器需要修理了。|日出的时候，整个海面都是金色的。|肉包子两块钱一个。|弱小的草也能顶开石头。
荣誉属于每一位工人。|软座车厢在前面。|瑞雪兆丰年。|润喉糖放在药箱里。|让我看看，应该没有问题。
咱们俩谁跟谁，别客气。|怎么会这样呢？|钻石闪闪发光。|最近的邮局在哪条街？|尊敬的顾客，您好。
总是熬夜对身体不好。|祖父留下了一只旧钟。|坐着聊一会，不着急。|昨天的作业还没做完。|增加一个座位可以吗？
层层叠叠的梯田非常壮观。|粗心的人容易犯错误。|村子里只有二十几户人家。|从前有一座庙。|错过了这班车，就要等一个小时。
擦桌子，扫地，浇花，都是我的事。|参观博物馆要提前预约。|苍蝇在窗户上爬。|操作起来很简单。|岑寂的夜里只听见虫鸣。
撒谎的孩子鼻子会变长。|三伞四扇，谁也念不清。|桑树的叶子用来养蚕。|嫂子在院里晒被子。|色彩鲜艳的蝴蝶停在花上。
僧人敲响了古老的钟。|搜索一下附近的停车场。|酸辣粉少放辣，可以吗？|随便坐，都可以。|孙悟空一个筋斗十万八千里。
松树四季常青。|宿舍的灯熄了。|所有的窗户都朝南。|沙漠里有一片绿洲。|傻瓜相机用起来最简单。
谁家的狗在叫？|什么时候能到？|升降机正在维修。|收银台在那边。|刷牙以后不要吃糖。
摔碎的碗要小心收拾。|拴住那匹马。|双胞胎长得一模一样。|水果拼盘一份。|顺着河一直走就到了。
说到做到，绝不反悔。|扎紧袋口，别让米漏了。|摘几个苹果带回去。|站在高处看得远。|张开嘴，我看看嗓子。
照片洗好了，真清楚。|折叠椅放在车上。|这里原来是一片沼泽。|针线盒在柜子上层。|蒸鱼要用大火。
周围一个人也没有。|抓紧时间，快迟到了。|拽住绳子，别松手。|专家给出了建议。|装修队下周进场。
追了半天也没追上。|准备好了就出发。|桌上的花瓶是青花瓷。|插座在墙角。|拆开包装看看。
产品质量有保证。|长城是中国的象征。|超过两小时要收费。|车窗摇下来一点。|沉默了很久，他才开口。
成功需要努力和运气。|抽奖活动下午三点开始。|揣着手站在雪地里。|穿过隧道就是海边。|窗帘拉上，太阳太晒了。
吹灭蜡烛，许个愿。|春卷炸得金黄酥脆。|戳一下屏幕就可以了。|娃娃脸上挂着泪珠。|歪歪扭扭的字，谁写的？
弯弯的小河绕着村庄。|王先生在楼下等您。|威尼斯是一座水城。|温泉泡一泡，疲劳就没了。|老翁在江边钓鱼。
蜗牛慢慢地爬上葡萄架。|屋里太闷，开开窗。|呀，下雪了！|崖边的松树真倔强。|演员的表演很精彩。
阳台上晾着衣服。|要不要尝一尝？|爷俩下棋下到半夜。|夜市的小吃又多又便宜。|银行下午五点关门。
影子拉得很长。|哟，好久不见！|拥抱一下老朋友。|有空常来坐坐。|鱼汤要趁热喝。
圆珠笔没有水了。|月票丢了可以补办。|云彩像一群绵羊。|佛像高达七十一米。|否则就来不及了。
疯狂的想法有时候最好。|粉色的气球飞走了。|飞机穿过云层。|方向盘往左打。|烦恼都抛到脑后去吧。
罚款二百元，请在这里签字。|啪的一声，灯灭了。|拍手叫好的人很多。|盘子里剩下半个馒头。|胖子跑得也不慢。
泡茶的水要烧开。|陪老人聊聊天。|喷泉晚上有灯光表演。|朋友从国外回来了。|皮球滚到床底下。
偏僻的小巷里有家好店。|漂洋过海来看你。|撇开成见，好好谈谈。|拼命工作的人也要睡觉。|平时不努力，临时抱佛脚。
婆婆和媳妇相处得很好。|剖开的椰子里全是水。|扑通一声跳进水里。|嗯，我明白了。|哦，原来是这样。
哎呀，差点忘了。|安静一点，宝宝睡了。|昂首阔步走进会场。|凹下去的地方积了水。|欧洲的冬天很长。
恩人的名字他一直记着。|耳机的声音太大会伤耳朵。|饿了就先吃点饼干。|丢三落四的毛病要改。|掂一掂这袋米有多重。
貂皮大衣很贵。|跌倒了再爬起来。|盯着屏幕太久眼睛会疼。|东西南北都走遍了。|端午节吃粽子，赛龙舟。
堆雪人最开心了。|蹲下来系鞋带。|多谢您的提醒。|嫩芽从土里钻出来。|能不能快一点？
妞妞今年三岁。|娘家在山那边。|鸟儿在枝头唱歌。|捏一个泥人。|宁可少一点，也要新鲜。
农历新年快到了。|努力不会白费。|暖气开得很足。|挪一下椅子，谢谢。|女孩的头发又黑又亮。
虐待小动物是不对的。|俩人一见如故。|略过这一段吧。|乱七八糟的房间该收拾了。|轮到您了，请过来。
萝卜炖牛肉真香。|绿豆汤解暑。|聋哑学校的孩子们会手语。|楼梯很陡，小心脚下。|路灯一盏一盏亮了。
揪心的消息传来了。|窘迫的样子让人难忘。|军训持续两周。|倔脾气的人不好劝。|捐款箱放在门口。
均匀地撒上芝麻。|卷心菜切成丝。|橘子皮可以泡水。|掐指一算，正好三年。|强烈的光线刺痛眼睛。
瘸了一条腿的小狗很可怜。|群众的眼睛是雪亮的。|泉水清澈见底。|穷人的孩子早当家。|球场上欢声雷动。
瞎猫碰上死耗子。|咸蛋黄做的馅。|熊猫最爱吃竹子。|学无止境。|寻人启事贴在墙上。
选一个您喜欢的口味。|虚心使人进步。|修鞋的老人手很巧。|瓜子花生摆一桌。|拐角处有一家花店。
关于价格，我们可以再商量。|光着脚踩在草地上。|归根到底是时间不够。|滚烫的汤要放凉。|过马路要看红绿灯。
夸他两句他就脸红。|会计算了三遍账。|宽敞的客厅很明亮。|矿泉水一瓶两块五。|葵花朝着太阳。
困了就早点睡。|扩音器坏了。|化学实验要戴手套。|怀里抱着一只兔子。|欢迎光临，里面请。
慌慌张张跑出去。|灰尘落了一层。|荤素搭配更健康。|货已经发出去了。|烘干机在地下室。
给您多加了一份冰。|跟我来，就在前面。|更新一下菜单。|狗尾巴摇得欢。|肯定没问题，放心吧。
坑坑洼洼的路不好走。|口渴的时候最想喝水。|卡住了，退不出来。|抗议的人群散去了。|黑板上写满了字。
恨铁不成钢。|哼着小曲往家走。|猴子捞月亮。|哈欠一个接一个。|航班取消了，只好改签。
""".strip()
    .replace("\n", "|")
    .split("|")
)

SMALL_TALK = (
    """
您好，欢迎光临，请问想喝点什么？|你好，想喝点什么？|早上好，今天想来点什么？|下午好，请问要点单吗？|晚上好，欢迎光临。|在的，请讲。|在呢，您请说。
不好意思，我没听清，可以再说一遍吗？|抱歉，刚才没听清楚，您能再说一次吗？|对不起，我没有明白您的意思。|请您再说一遍，好吗？|您是想要点喝的吗？
好的，没问题。|好的，请稍等。|好的，马上为您准备。|没问题，已经帮您改好了。|收到，这就给您改。|明白了，还需要别的吗？|还要别的吗？|就这些吗？|还有什么需要吗？
不客气，祝您喝得开心。|不用谢，欢迎下次光临。|谢谢您，再见。|再见，祝您今天愉快。|谢谢您的耐心等待。
您的订单是空的，还没有点任何东西。|您还没有点单呢，想喝点什么？|订单已经全部清空了。|好的，都取消了。|好的，那就不要了。|没关系，您慢慢看。
我是点单助手，只能帮您点饮料。|这个我帮不上忙，您想喝点什么吗？|我不太懂天气，不过我们有冰的和热的饮料。|我们这里没有这个，要不要看看别的？|抱歉，我们没有咖喱饭，只有饮料。
您说的是哪一杯？|您要改第几杯？|要改成什么呢？|要几杯呢？|是要热的还是冰的？|您想要大杯还是中杯？|甜度要多少？|冰要正常吗？|请问确认下单吗？|现在就下单吗？
对，就是这样。|是的，没错。|可以的。|当然可以。|有的。|没有了。|卖完了。|抱歉，这个卖完了。|请先点一杯饮料再加料。|您要确认一下数量吗？|这个数量有点多，您确定吗？
可以刷卡，也可以用手机付款。|可以打包带走。|大概需要等五分钟。|我们的茶都是现泡的。|珍珠是每天现煮的。|甜度和冰量都可以选。|您可以加珍珠、椰果、布丁、红豆、芋圆、仙草或者奶盖。
我是机器人，不过我很会点单。|哈哈，谢谢您的夸奖。|我很好，谢谢，您呢？|您太客气了。|慢走，小心台阶。|请到前台取餐。|请您凭号码取餐。|请问怎么称呼您？
""".strip()
    .replace("\n", "|")
    .split("|")
)


def number(n: int) -> str:
    """`n` (0 to 9999) in Chinese words, with 两 before 百 and 千 as people say it."""
    if not 0 <= n <= 9999:
        raise ValueError(f"expected 0 to 9999, got {n}")
    if n < 10:
        return _DIGITS[n]
    words, zero = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // unit % 10
        if digit == 0:
            zero = bool(words)
            continue
        if zero:
            words, zero = words + "零", False
        if unit == 10 and digit == 1 and not words:
            words += "十"
        elif unit >= 100 and digit == 2:
            words += "两" + name
        else:
            words += _DIGITS[digit] + name
    return words


def digits(n: int) -> str:
    """`n` read digit by digit."""
    return "".join(_DIGITS[int(d)] for d in str(n))


def counted(n: int) -> str:
    """`n` before a measure word: 两杯, but 十二杯."""
    return "两" if n == 2 else number(n)


@dataclass(frozen=True)
class Words:
    """The menu's Chinese words."""

    drinks: tuple[str, ...]
    aliases: tuple[str, ...]
    size: tuple[str, ...]
    ice: tuple[str, ...]
    sugar: tuple[str, ...]
    toppings: tuple[str, ...]

    @classmethod
    def of(cls, menu: dict[str, Any]) -> Words:
        def zh(entries: Sequence[dict[str, Any]]) -> tuple[str, ...]:
            return tuple(entry["zh"] for entry in entries)

        chinese = [a for d in menu["drinks"] for a in d.get("aliases", ()) if "\u4e00" <= a[0] <= "\u9fff"]
        options = menu["options"]
        return cls(
            zh(menu["drinks"]), tuple(chinese), zh(options["size"]), zh(options["ice"]), zh(options["sugar"]),
            zh(menu["toppings"]),
        )  # fmt: skip


class _Replies:
    """Draws one ordering reply at a time."""

    def __init__(self, words: Words, rng: random.Random) -> None:
        self.words, self.rng = words, rng
        self.makers: list[tuple[float, Callable[[], str]]] = [
            (4, self.confirm), (2, self.item_list), (2, self.total), (2, self.price), (1.5, self.changed),
            (1.2, self.replaced), (1, self.removed), (1.2, self.sold_out), (1.5, self.question), (1, self.topping),
            (2, self.placed), (1, self.refused), (1, self.what_there_is), (1.5, self.read_back), (1, self.plain_count),
        ]  # fmt: skip

    def draw(self) -> str:
        weights = [weight for weight, _ in self.makers]
        return self.rng.choices([make for _, make in self.makers], weights)[0]()

    def drink(self) -> str:
        return self.rng.choice(self.words.drinks if self.rng.random() < 0.85 else self.words.aliases)

    def options(self) -> str:
        picked = [
            self.rng.choice(group)
            for group, chance in ((self.words.size, 0.4), (self.words.ice, 0.6), (self.words.sugar, 0.5))
            if self.rng.random() < chance
        ]
        self.rng.shuffle(picked)
        return "".join(picked)

    def amount(self) -> int:
        kind = self.rng.random()
        return (
            self.rng.randint(1, 99)
            if kind < 0.6
            else self.rng.randint(100, 999)
            if kind < 0.9
            else self.rng.randint(1000, 2000)
        )

    def money(self) -> str:
        amount = self.amount()
        tail = self.rng.choices(["块", "块五", "元", "块钱"], [6, 1, 1, 1])[0]
        return counted(amount) + tail

    def cups(self) -> int:
        return self.rng.choices(range(1, 31), [12, 8, 6, 4, 3, 2, 2, 2, 2, 2] + [0.5] * 20)[0]

    def with_topping(self) -> str:
        roll = self.rng.random()
        one, two = self.rng.sample(self.words.toppings, 2)
        return f"加{one}" if roll < 0.25 else f"加{one}和{two}" if roll < 0.32 else ""

    def item(self) -> str:
        count = counted(self.cups()) + "杯"
        return self.rng.choice(
            [
                lambda: f"{self.options()}{self.drink()}{self.with_topping()}{count}",
                lambda: f"{count}{self.options()}{self.drink()}{self.with_topping()}",
            ]
        )()

    def confirm(self) -> str:
        head = self.rng.choice(["好的，", "好的，", "好，", "没问题，", "可以，", ""])
        tail = self.rng.choice(
            [
                f"，{self.money()}。",
                f"，一共{self.money()}。",
                "。",
                "，还要别的吗？",
                f"，{self.money()}，还需要别的吗？",
            ]
        )
        return head + self.item() + tail

    def item_list(self) -> str:
        items = "，".join(self.item() for _ in range(self.rng.choice([2, 2, 3])))
        return f"好的，{items}，一共{self.money()}。"

    def total(self) -> str:
        return (
            self.rng.choice(["一共是", "总共", "现在一共", "合计", "总价是"])
            + self.money()
            + self.rng.choice(["。", "，请问还需要别的吗？", "，确认下单吗？"])
        )

    def price(self) -> str:
        size = self.rng.choice(["", "", *self.words.size])
        what = size + self.drink() if self.rng.random() < 0.75 else f"加{self.rng.choice(self.words.toppings)}"
        tail = self.rng.choice(["。", "一杯。", "，要来一杯吗？"])
        return f"{what}{self.rng.choice(['是', '要', '卖', ''])}{self.money()}{tail}"

    def changed(self) -> str:
        option = self.rng.choice(self.words.size + self.words.ice + self.words.sugar)
        where = self.rng.choice([f"第{number(self.rng.randint(1, 12))}杯", self.drink(), "刚才那杯", "这杯"])
        return (
            self.rng.choice(["好的，", "改好了，", "没问题，"]) + f"{where}改成{option}{self.rng.choice(['', '了'])}。"
        )

    def replaced(self) -> str:
        return f"好的，把{self.drink()}换成{self.drink()}{self.rng.choice(['了', '', f'，现在一共{self.money()}'])}。"

    def removed(self) -> str:
        what = self.rng.choice(
            [self.drink(), f"{counted(self.cups())}杯{self.drink()}", f"第{number(self.rng.randint(1, 12))}杯"]
        )
        return self.rng.choice([f"好的，{what}取消了。", f"好的，去掉{what}。", f"已经帮您把{what}拿掉了。"])

    def sold_out(self) -> str:
        what = self.drink() if self.rng.random() < 0.8 else self.rng.choice(self.words.toppings)
        return (
            self.rng.choice(["不好意思，", "抱歉，", "对不起，"])
            + f"{what}{self.rng.choice(['今天卖完了', '卖光了', '暂时没有了'])}，要不要换{self.drink()}？"
        )

    def question(self) -> str:
        words, rng = self.words, self.rng
        return rng.choice(
            [
                lambda: f"请问要{rng.choice(words.size)}还是{rng.choice(words.size)}？",
                lambda: f"{self.drink()}要什么甜度？{rng.choice(words.sugar)}可以吗？",
                lambda: f"您是要{self.drink()}还是{self.drink()}？",
                lambda: f"{self.drink()}要{rng.choice(words.ice)}吗？",
                lambda: (
                    f"{counted(self.cups())}杯{self.drink()}，{rng.choice(words.sugar)}，{rng.choice(words.ice)}，对吗？"
                ),
                lambda: f"您要{number(self.amount())}杯吗？这个数量请再确认一下。",
            ]
        )()

    def topping(self) -> str:
        one = self.rng.choice(self.words.toppings)
        return self.rng.choice(
            [
                f"加{one}要多{self.money()}，可以吗？",
                f"好的，{self.drink()}加一份{one}。",
                f"{one}已经去掉了。",
                f"好的，加{one}，{self.money()}。",
            ]
        )

    def placed(self) -> str:
        order = self.rng.randint(1, 9) if self.rng.random() < 0.2 else self.rng.randint(10, 2000)
        read = digits(order) if self.rng.random() < 0.6 else number(order)
        head = self.rng.choice(["下单成功，", "订单已经提交，", "好的，已经下单了，", "好了，"])
        return (
            head
            + self.rng.choice(["取餐号是", "您的号码是", "订单号", "您是"])
            + f"{read}号{self.rng.choice(['。', '，请稍等。', '，谢谢。'])}"
        )

    def refused(self) -> str:
        words, rng = self.words, self.rng
        return rng.choice(
            [
                lambda: f"抱歉，{self.drink()}不能做{rng.choice(words.ice)}的。",
                lambda: f"{self.drink()}只有{rng.choice(words.ice)}的，可以吗？",
                lambda: f"不好意思，菜单上没有这个，要不要试试{self.drink()}？",
                lambda: f"抱歉，一次最多{number(rng.randint(2, 40))}杯。",
                lambda: f"抱歉，没有第{number(rng.randint(2, 30))}杯，您一共点了{counted(self.cups())}杯。",
            ]
        )()

    def what_there_is(self) -> str:
        three = self.rng.sample(self.words.drinks, 3)
        return (
            self.rng.choice(["我们有", "推荐您试试", "卖得最好的是", "今天有"])
            + "、".join(three[:2])
            + f"和{three[2]}{self.rng.choice(['。', '，您想要哪一种？'])}"
        )

    def read_back(self) -> str:
        return (
            self.rng.choice(["您点了", "给您念一下，", "您的订单是", "确认一下，"])
            + "，".join(self.item() for _ in range(self.rng.choice([1, 2, 3])))
            + f"，一共{self.money()}，对吗？"
        )

    def plain_count(self) -> str:
        return f"{counted(self.amount())}{self.rng.choice(['块', '元', '杯', '号', '块五'])}。"


def sentences(menu: dict[str, Any], count: int, seed: int) -> list[str]:
    """`count` different sentences, replies and general ones mixed, in an order that `seed` fixes.

    Args:
        menu: the menu file as parsed YAML (`options`, `toppings`, `drinks`).
        count: at least the number of fixed sentences.

    Raises:
        ValueError: `count` is too small.
    """
    words, rng = Words.of(menu), random.Random(seed)
    fixed = [s.strip() for s in GENERAL + SMALL_TALK]
    fixed += [f"{name}，{counted(rng.randint(10, 35))}块。" for name in words.drinks + words.aliases]
    chosen = dict.fromkeys(fixed)
    if count < len(chosen):
        raise ValueError(f"expected at least {len(chosen)} sentences, got {count}")
    replies = _Replies(words, rng)
    while len(chosen) < count:
        chosen[replies.draw()] = None
    mixed = list(chosen)
    rng.shuffle(mixed)
    return mixed
